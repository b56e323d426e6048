from typing import Literal

import pytest
import torch

from llmprof.ceilings import attention
from llmprof.ceilings.attention import (
    BLOCK_TOKENS,
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    AttentionProbe,
    Case,
    filled_cache,
    measure_attention,
)
from llmprof.ceilings.timing import Stopwatch
from llmprof.engine.attention import StandardAttention, make_attention
from llmprof.engine.kv_cache import KvCache
from llmprof.engine.step_batch import StepBatch
from llmprof.schema.settings import AttentionKind
from llmprof.store.progress import NullProgress
from tests.unit.ceilings.factories import MIB, a_cpu, l3


@pytest.mark.parametrize(
    ("kv_dtype", "per_vector"),
    [("bf16", 2 * HEAD_DIM), ("int8", HEAD_DIM + 4), ("fp8", HEAD_DIM)],
)
def test_bytes_are_those_of_the_store(kv_dtype: str, per_vector: int) -> None:
    case = Case("paged", kv_dtype, 256)
    assert case.layer_bytes == 2 * KV_HEADS * 256 * per_vector
    assert case.blocks == 256 // BLOCK_TOKENS
    assert filled_cache(case, 3, "cpu").bytes_reserved == 3 * case.layer_bytes


def test_layers_fill_the_working_set_and_are_two_at_least() -> None:
    case = Case("contiguous", "bf16", 512)
    assert case.layers(10 * case.layer_bytes + 5) == 10
    assert case.layers(1) == 2


@pytest.mark.parametrize("layout", ["contiguous", "paged"])
@pytest.mark.parametrize("kv_dtype", ["bf16", "int8", "fp8"])
def test_every_kernel_attends_to_the_same_tokens(
    layout: Literal["contiguous", "paged"], kv_dtype: str
) -> None:
    """The layers hold equal numbers, so each must give the same; and flash what standard gives."""
    case = Case(layout, kv_dtype, 64)
    cache = filled_cache(case, 2, "cpu")
    outputs = []
    for kind in AttentionKind:
        module = make_attention(kind, "cpu")
        probe = AttentionProbe(case, cache, 2, module, "cpu")
        for layer in (0, 1):
            outputs.append(module(probe._query, cache, layer, probe._step).float())
    for out in outputs[1:]:
        assert out.shape == (1, HEADS * HEAD_DIM)
        torch.testing.assert_close(out, outputs[0], rtol=0.05, atol=0.02)
    assert outputs[0].abs().max() > 0


def test_a_call_goes_on_where_the_last_one_stopped() -> None:
    seen: list[int] = []
    case = Case("contiguous", "bf16", 16)

    class Listening(StandardAttention):
        def __call__(
            self, query: torch.Tensor, cache: KvCache, layer: int, step: StepBatch
        ) -> torch.Tensor:
            seen.append(layer)
            return query

    probe = AttentionProbe(case, filled_cache(case, 5, "cpu"), 5, Listening(), "cpu")
    probe.layers_per_call = 3
    probe()
    probe()
    assert seen == [0, 1, 2, 3, 4, 0]
    assert probe.bytes_per_call == 3 * case.layer_bytes


def test_every_cell_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "CONTEXTS", (32, 64))
    monkeypatch.setattr(attention, "working_set_bytes", lambda environment, device: 1 << 18)
    monkeypatch.setattr(Stopwatch, "time_s", lambda self, call: call() or 1e-3)
    environment = a_cpu(l3(8 * MIB))
    with torch.inference_mode():
        found = measure_attention(environment, "cpu", (), budget_s=0.0, progress=NullProgress())
    cells = {(one.layout, one.kv_dtype, one.kind, one.context_tokens) for one in found}
    assert len(cells) == len(found) == 2 * 3 * 2 * 2
    assert {one.level for one in found} == {"LLC"}
    # one layer of 32 tokens in 1 ms, or two
    one = next(one for one in found if one.kv_dtype == "bf16" and one.context_tokens == 32)
    assert one.bytes_per_s == pytest.approx(2 * 8 * 32 * 128 * 2 * 2 / 1e-3)
