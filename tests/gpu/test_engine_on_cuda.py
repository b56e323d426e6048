"""The engine on a GPU: every way of starting and storing gives the same tokens, and nothing waits."""

from typing import Any

import pytest
import torch

from llmprof.engine.engine import Engine
from llmprof.engine.engine_workload import EngineWorkload
from llmprof.engine.open_workload import open_workload
from llmprof.engine.probe import NullProbe
from llmprof.engine.sampling import GreedySampler
from llmprof.schema.settings import RunConfig
from tests.published import decoder
from tests.tiny_decoders import on_paper, settings

pytestmark = pytest.mark.gpu
MODEL = decoder("small", 2, 128, 256, 4, 2, 256, context=2048)
DEVICE = "cuda:0"


def config(**groups: Any) -> RunConfig:
    weights = {"source": "random", "dtype": "fp32"}
    made = settings(**{"weights": weights, **groups})
    return made.model_copy(update={"device": DEVICE})


def load(wanted: RunConfig) -> Engine:
    return Engine.load(
        on_paper(MODEL), wanted, device=DEVICE, threads=1, host_available_bytes=2**33
    )


def output(**groups: Any) -> str | None:
    wanted = config(**groups)
    return open_workload(load(wanted), wanted).run_round(NullProbe())


@pytest.mark.parametrize(
    "change",
    [
        {"execution": {"mode": "cuda_graph"}},
        {"kv_cache": {"layout": "paged"}},
        {"kv_cache": {"layout": "paged"}, "execution": {"mode": "cuda_graph"}},
        {"attention": {"kind": "standard"}},
        {"attention": {"kind": "standard"}, "execution": {"mode": "cuda_graph"}},
    ],
)
def test_the_same_tokens(change: dict[str, Any]) -> None:
    """300 steps: more than one bucket of contexts, so graphs of several sizes take turns."""
    work = {"workload": {"prompt_tokens": 20, "output_tokens": 300, "batch": 3}}
    assert output(**work, **change) == output(**work)


def test_graphs_of_batches_that_grow_and_shrink() -> None:
    lengths = {"kind": "uniform", "mean": 20, "low": 4, "high": 40}
    serving = {
        "kv_cache": {"layout": "paged"},
        "batching": {"policy": "continuous", "max_sequences": 6, "max_step_tokens": 64},
        "workload": {
            "kind": "trace",
            "requests": 16,
            "lengths": {"prompt": lengths, "output": lengths},
        },
    }
    assert output(**serving, execution={"mode": "cuda_graph"}) == output(**serving)


@pytest.mark.parametrize("layout", ["contiguous", "paged"])
def test_decode_steps_never_wait_for_the_device(layout: str) -> None:
    """torch raises where a step synchronises."""
    wanted = config(kv_cache={"layout": layout})
    engine = load(wanted)
    batch = engine.open_batch(torch.zeros(2, 8, dtype=torch.long), output_tokens=40)
    sampler, probe = GreedySampler(), NullProbe()
    engine.step(batch, sampler, probe)
    engine.step(batch, sampler, probe)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(36):
            engine.step(batch, sampler, probe)
        mode = torch.cuda.get_sync_debug_mode()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert mode == 2, "the steps ran while waiting was an error"


def test_half_precision_is_finite() -> None:
    for dtype in ("bf16", "fp16"):
        wanted = config(weights={"source": "random", "dtype": dtype})
        assert isinstance(open_workload(load(wanted), wanted), EngineWorkload)
        assert open_workload(load(wanted), wanted).run_round(NullProbe())
