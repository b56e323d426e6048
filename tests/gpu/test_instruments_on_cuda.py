"""Clocks, held-back rounds and partitions, where there is a device to ask."""

from pathlib import Path

import pytest
import torch

from llmprof.ceilings.measure import keep_ceilings, measure_ceilings
from llmprof.errors import CapabilityError
from llmprof.instruments.clock import CudaEventTimer
from llmprof.instruments.gpu_info import gpu_info
from llmprof.instruments.hold_back import hold_back
from llmprof.instruments.sm_partition import SmPartition, half_of
from llmprof.instruments.snapshot import resolve_threads, snapshot
from llmprof.profiler import profile
from llmprof.schema.settings import RunConfig

pytestmark = pytest.mark.gpu
DEVICE = "cuda:0"


def test_a_device_is_held_back_at_least_as_long_as_asked() -> None:
    timer, hold = CudaEventTimer(DEVICE, capacity=2), hold_back(DEVICE, 0.01)
    hold()
    timer.reset()
    begin = timer.mark()
    hold()
    end = timer.mark()
    timer.synchronize()
    assert 0.009 < timer.elapsed_s(begin, end) < 0.1


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With quick ceilings: those that others find must not have been measured beside tests."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLMPROF_CACHE_DIR", str(folder))
        environment = snapshot(DEVICE, resolve_threads(None))
        keep_ceilings(measure_ceilings(environment, DEVICE, quick=True))
    return folder


@pytest.mark.parametrize("mode", ["eager", "cuda_graph"])
def test_a_run_from_start_to_end(
    mode: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMPROF_DIR", str(tmp_path))
    monkeypatch.setenv("LLMPROF_CACHE_DIR", str(cache))
    config = RunConfig.model_validate(
        {
            "model": "smollm2-135m",
            "device": DEVICE,
            "weights": {"source": "random", "dtype": "bf16"},
            "execution": {"mode": mode},
            "workload": {"prompt_tokens": 64, "output_tokens": 9},
            "measure": {
                "rounds": 2,
                "warmup": 1,
                "passes": ["clean", "grouped", "counting", "tracing", "nvtx"],
            },
        }
    )
    record = profile(config)
    for one in (*record.rounds, *record.grouped):
        assert one.telemetry is not None
        if "nvml" not in one.telemetry.missing and "sm_clock_hz" not in one.telemetry.missing:
            assert one.telemetry.sm_clock_samples or "sm_clock_samples" in one.telemetry.missing
            assert one.after is not None
            assert one.after.sm_clock_hz is not None
    assert record.status == "complete"
    assert record.engine.regime == "run_ahead"
    assert all(one.held_back for one in record.grouped)
    assert all(step.device_s for one in record.rounds for step in one.steps)
    assert record.trace is not None


def test_a_partition_multiplies_as_the_whole_does() -> None:
    a = torch.randn(1024, 1024, device=DEVICE)
    whole = a @ a
    try:
        partition = SmPartition(DEVICE, half_of(gpu_info(DEVICE).multiprocessors))
    except CapabilityError as error:
        pytest.skip(str(error))
    for _ in range(2):
        with partition.entered():
            part = a @ a
    assert torch.allclose(part, whole, rtol=1e-3, atol=1e-2)
