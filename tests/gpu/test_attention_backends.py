"""Whose kernels attend on a real GPU: each that works here against plain arithmetic, and whole runs.

`choose_kernels` itself compares a library with plain arithmetic before it is used; what is left to
show here is that models give the same tokens, op by op and in graphs.
"""

from collections.abc import Mapping

import pytest
import torch

from llmprof.engine.attention import AttentionNeeds, CacheKernels, ScoreRule, choose_kernels
from llmprof.engine.attention.kernel_trial import trial_trouble
from llmprof.engine.attention.score_rule import PLAIN
from llmprof.engine.engine import Engine
from llmprof.engine.probe import NullProbe
from llmprof.engine.serving_workload import ServingWorkload
from llmprof.errors import CapabilityError
from llmprof.schema.settings import AttentionBackend, RunConfig
from tests.published import decoder
from tests.tiny_decoders import on_paper, settings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
DEVICE = "cuda:0"
LIBRARIES = pytest.mark.parametrize("backend", ["varlen", "flashinfer"])
MODEL = decoder("small", 2, 512, 1024, 8, 2, 500, context=2048)
"""Heads of 64 numbers, four of which share a KV head."""


@LIBRARIES
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("block_tokens", [16, 256, None])
@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float8_e4m3fn])
def test_a_library_gives_what_plain_arithmetic_gives(
    backend: str, head_dim: int, block_tokens: int | None, stored: torch.dtype
) -> None:
    rules = (PLAIN, ScoreRule(window=1024), ScoreRule(scale=0.1))
    needs = AttentionNeeds(DEVICE, torch.bfloat16, stored, 32, 8, head_dim, block_tokens, rules)
    chosen = kernels_or_skip(backend, needs)
    assert chosen.step is not None
    assert trial_trouble(chosen.step, needs) is None


def kernels_or_skip(backend: str, needs: AttentionNeeds) -> CacheKernels:
    try:
        return choose_kernels(AttentionBackend(backend), needs)
    except CapabilityError as error:
        pytest.skip(str(error))


def engine_on(config: RunConfig) -> Engine:
    torch.manual_seed(0)
    return Engine.load(
        on_paper(MODEL), config, device=DEVICE, threads=1, host_available_bytes=2**33
    )


def config(backend: str, mode: str, **groups: Mapping[str, object]) -> RunConfig:
    return settings(
        weights={"source": "random", "dtype": "bf16"},
        attention={"backend": backend},
        execution={"mode": mode},
        kv_cache={"layout": "paged", "block_tokens": 256},
        **groups,
    )


@LIBRARIES
@pytest.mark.parametrize("mode", ["eager", "cuda_graph"])
def test_logits_as_with_our_own_kernels(backend: str, mode: str) -> None:
    """Step by step on the same ids: tokens of random weights are ties too often."""
    ids = torch.arange(300).remainder(500).view(1, -1)
    try:
        engine = engine_on(config(backend, mode))
    except CapabilityError as error:
        pytest.skip(str(error))
    rows = [step_logits(one, ids) for one in (engine, engine_on(config("native", mode)))]
    scale = float(rows[1].abs().max())
    torch.testing.assert_close(rows[0], rows[1], rtol=0, atol=0.05 * scale)


def step_logits(engine: Engine, ids: torch.Tensor) -> torch.Tensor:
    """Of the prompt's last token, and of six decode steps over a page's boundary and back."""
    batch = engine.open_batch(ids[:, :253], output_tokens=12)
    found = []
    with torch.inference_mode():
        for _ in range(7):
            logits = engine.forward(batch.next_step(), batch.cache, batch.rotary, NullProbe())
            found.append(logits.float().clone())
            batch.tokens[:, batch.num_tokens] = ids[0, batch.num_tokens].to(DEVICE)
            batch.advance()
    return torch.cat(found)


@LIBRARIES
@pytest.mark.parametrize("mode", ["eager", "cuda_graph"])
def test_requests_give_the_same_tokens_every_round(backend: str, mode: str) -> None:
    """Batches grow, shrink and are padded; a stale plan or a row that is not written would differ."""
    served: dict[str, Mapping[str, object]] = {
        "batching": {"policy": "continuous", "max_sequences": 5, "max_step_tokens": 64},
        "workload": {
            "kind": "trace",
            "requests": 9,
            "lengths": {
                "prompt": {"kind": "uniform", "low": 20, "high": 300},
                "output": {"kind": "uniform", "low": 2, "high": 20},
            },
        },
    }
    asked = config(backend, mode, **served)
    try:
        engine = engine_on(asked)
    except CapabilityError as error:
        pytest.skip(str(error))
    workload = ServingWorkload(engine, asked)
    first, *others = (workload.run_round(NullProbe()) for _ in range(3))
    assert others == [first, first]
