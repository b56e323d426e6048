"""Decode steps that torch.compile made, on a GPU: the logits of eager steps, and nothing compiled twice.

Last in the alphabet of this folder: compilers take their time, and others should not wait for it.
"""

from typing import Any

import pytest
import torch

from llmprof.engine.engine import Engine
from llmprof.engine.probe import NullProbe
from llmprof.engine.sampling import GreedySampler
from llmprof.schema.settings import RunConfig
from tests.published import decoder
from tests.tiny_decoders import on_paper, settings

pytestmark = pytest.mark.gpu
MODEL = decoder("small", 2, 128, 256, 4, 2, 256, context=2048)
DEVICE = "cuda:0"
PROMPT_TOKENS = 240
STEPS = 40
"""From 241 tokens on: two buckets of 256 where attention reads a fixed number of them."""


def config(**groups: Any) -> RunConfig:
    weights = {"source": "random", "dtype": "fp32", **groups.pop("weights", {})}
    return settings(weights=weights, **groups).model_copy(update={"device": DEVICE})


def load(wanted: RunConfig) -> Engine:
    return Engine.load(
        on_paper(MODEL), wanted, device=DEVICE, threads=1, host_available_bytes=2**33
    )


def logits_of(engine: Engine, tokens: torch.Tensor | None = None) -> torch.Tensor:
    """Of a prefill and decode steps [steps, 3, vocabulary], fed with the most probable tokens.

    `tokens`: [3, steps] that are fed instead.
    """
    prompts = torch.randint(256, (3, PROMPT_TOKENS), generator=torch.Generator().manual_seed(5))
    batch = engine.open_batch(prompts, output_tokens=STEPS)
    found = []
    for number in range(STEPS):
        with torch.inference_mode():
            logits = engine.forward(batch.next_step(), batch.cache, batch.rotary, NullProbe())
            found.append(logits.clone())
            out = batch.tokens.narrow(1, batch.num_tokens, 1)
            if tokens is None:
                GreedySampler()(logits, out)
            else:
                out.copy_(tokens[:, number : number + 1])
        batch.advance()
    return torch.stack(found)


@pytest.mark.parametrize(
    ("change", "compiled", "error"),
    [
        ({"kv_cache": {"layout": "paged"}}, 1, 0.01),
        ({"attention": {"kind": "standard"}}, 2, 0.01),
        ({"weights": {"quantization": "int4"}, "kv_cache": {"dtype": "int8"}}, 1, 0.1),
    ],
    ids=["flash", "standard", "quantized"],
)
def test_the_same_tokens(change: dict[str, Any], compiled: int, error: float) -> None:
    """Numbers of a cache in int8 may be rounded the other way after a sum in another order."""
    expected = logits_of(load(config(**change)))
    tokens = expected.argmax(dim=2).t()
    engine = load(config(**change, execution={"mode": "compiled"}))
    found = logits_of(engine, tokens)
    assert float((found - expected).abs().max()) < error * float(expected.std())
    same = found.argmax(dim=2).t() == tokens
    assert float(same.float().mean()) > 0.95
    assert engine.num_compiled == compiled
    assert torch.equal(logits_of(engine, tokens), found)
    assert engine.num_compiled == compiled


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
