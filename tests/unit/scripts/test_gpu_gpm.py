"""Windows of GPM beside a fake NVML, which says why there is none."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from llmprof.instruments.nvml import open_nvml
from scripts.gpu import gpm_windows
from scripts.gpu.job import Job, read_found
from tests.fakes import FakeNvml


@pytest.mark.parametrize(
    ("failing", "activity", "why"),
    [((), 0.7, None), (("nvmlGpmSampleGet",), None, "Not Supported")],
)
def test_windows_that_cannot_be_read_say_why(
    failing: tuple[str, ...],
    activity: float | None,
    why: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml = FakeNvml(failing=failing)
    monkeypatch.setattr(gpm_windows, "_WINDOWS_S", (0.001, 0.002))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    for name, fake in {
        "llmprof.ceilings.pool.random_pool": lambda *_: torch.zeros(1),
        "llmprof.ceilings.read_kernels.read_kernels": lambda device: (),
        "llmprof.ceilings.read_probe.read_probes": lambda *_: {"read": lambda: None},
        "llmprof.ceilings.timing.Stopwatch": lambda device: None,
        "llmprof.instruments.gpu_info.gpu_info": lambda device: SimpleNamespace(uuid=nvml.uuid),
        "llmprof.instruments.nvml.open_nvml": lambda uuid: open_nvml(uuid, nvml=nvml),
    }.items():
        monkeypatch.setattr(name, fake)
    gpm_windows.try_windows(Job("cuda:0", "m", tmp_path, 13.0, time.perf_counter()))
    found = read_found(tmp_path)["gpm"]
    assert found["dram_activity_by_window_s"] == {"0.001": activity, "0.002": activity}
    assert found["why_none"] == why
    assert found["memory_query_after_gpm"] == "works"
