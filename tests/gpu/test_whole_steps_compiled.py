"""Decode steps that torch.compile made, on a GPU: the tokens of eager steps, and nothing compiled twice.

Last in the alphabet of this folder: compilers take their time, and others should not wait for it.
"""

from typing import Any

import pytest
import torch

from llmprof.engine.engine import Engine
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
    weights = {"source": "random", "dtype": "fp32", **groups.pop("weights", {})}
    work = {"prompt_tokens": 20, "output_tokens": 300, "batch": 3}
    made = settings(weights=weights, workload=work, **groups)
    return made.model_copy(update={"device": DEVICE})


def load(wanted: RunConfig) -> Engine:
    return Engine.load(
        on_paper(MODEL), wanted, device=DEVICE, threads=1, host_available_bytes=2**33
    )


@pytest.mark.parametrize(
    ("change", "compiled"),
    [
        ({"kv_cache": {"layout": "paged"}}, 1),
        ({"attention": {"kind": "standard"}}, 2),
        ({"weights": {"quantization": "int4"}, "kv_cache": {"dtype": "int8"}}, 1),
    ],
)
def test_the_same_tokens(change: dict[str, Any], compiled: int) -> None:
    """300 steps from 21 tokens on: two buckets of 256 where attention reads a fixed number of them."""
    eager = config(**change)
    expected = open_workload(load(eager), eager).run_round(NullProbe())
    wanted = config(**change, execution={"mode": "compiled"})
    work = open_workload(load(wanted), wanted)
    assert [work.run_round(NullProbe()) for _ in range(2)] == [expected, expected]
    assert work.round_details().compiled_steps == 0
    described = work.describe()
    assert described.compiled_steps == compiled
    assert described.compile_s > 0


def test_a_compiled_step_copies_no_cache() -> None:
    """Beside what lies there, steps need less memory than the keys and values of one layer."""
    engine = load(config(kv_cache={"layout": "paged"}, execution={"mode": "compiled"}))
    batch = engine.open_batch(torch.zeros(2, 8, dtype=torch.long), output_tokens=1000)
    sampler, probe = GreedySampler(), NullProbe()
    for _ in range(3):
        engine.step(batch, sampler, probe)
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated(DEVICE)
    torch.cuda.reset_peak_memory_stats(DEVICE)
    for _ in range(3):
        engine.step(batch, sampler, probe)
    needed = torch.cuda.max_memory_allocated(DEVICE) - held
    assert needed < batch.cache.bytes_reserved / MODEL.num_hidden_layers
    assert engine.num_compiled == 1
