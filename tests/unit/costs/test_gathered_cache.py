"""Copies of the cache that a kernel needs, and the padding that comes with them, by hand."""

import pytest

from llmprof.architectures.manifest import manifest_from_config
from llmprof.costs.options import CostOptions, kv_bytes_per_number
from llmprof.costs.step import step_cost
from llmprof.schema.cost import (
    KvAccess,
    KvRead,
    OpGroup,
    Phase,
    SequenceShape,
    StepCost,
    StepShape,
)
from llmprof.schema.settings import AttentionKind, KvLayout
from tests.published import decoder

LAYERS, HEADS, KV_HEADS, HEAD_DIM = 3, 4, 2, 8
MODEL = decoder("small", LAYERS, 32, 48, HEADS, KV_HEADS, 50)
TOKEN_COPY_BYTES = 2 * LAYERS * 2 * KV_HEADS * HEAD_DIM * 2
"""Written and read; layers, K and V, heads, numbers of bf16."""
GATHERED = KvAccess(decode=KvRead.GATHERED, chunk=KvRead.GATHERED)


def attention_cost(
    sequences: list[tuple[int, int, int]],
    *,
    kind: AttentionKind = AttentionKind.FLASH,
    layout: KvLayout = KvLayout.PAGED,
    access: KvAccess = GATHERED,
) -> StepCost:
    """Sequences as (count, new, cached)."""
    shape = StepShape(
        phase=Phase.MIXED,
        sequences=tuple(
            SequenceShape(count=count, new_tokens=new, cached_tokens=cached)
            for count, new, cached in sequences
        ),
        logit_rows=1,
    )
    options = CostOptions(attention=kind, kv_layout=layout, block_tokens=16, kv_access=access)
    cost = step_cost(MODEL, manifest_from_config(MODEL, "bf16"), shape, options)
    return cost.of_groups(OpGroup.ATTENTION)


@pytest.mark.parametrize("kind", AttentionKind)
@pytest.mark.parametrize(
    ("sequences", "layout", "copied_tokens"),
    [
        ([(1, 1, 40)], KvLayout.PAGED, 48),  # whole blocks
        ([(1, 1, 9)], KvLayout.PAGED, 10),  # a part of a single one
        ([(1, 1, 40)], KvLayout.CONTIGUOUS, 41),
        ([(2, 1, 40), (1, 1, 10)], KvLayout.PAGED, 3 * 48),  # as long as the longest
        ([(1, 5, 20)], KvLayout.PAGED, 32),
        ([(1, 1, 40), (2, 5, 20)], KvLayout.PAGED, 48 + 2 * 32),
        ([(3, 7, 0)], KvLayout.PAGED, 0),  # a prompt attends to its own rows
    ],
)
def test_copied_bytes(
    sequences: list[tuple[int, int, int]], layout: KvLayout, copied_tokens: int, kind: AttentionKind
) -> None:
    found = attention_cost(sequences, layout=layout, kind=kind)
    assert found.traffic.copies == copied_tokens * TOKEN_COPY_BYTES
    in_place = attention_cost(sequences, layout=layout, kind=kind, access=KvAccess())
    assert in_place.traffic.copies == 0
    assert in_place.traffic.kv_read == found.traffic.kv_read


def test_standard_attention_computes_and_stores_the_padding() -> None:
    """Contexts of 41, 11 and 11 tokens, all 41 long; a flash kernel needs only what there is."""
    sequences = [(1, 1, 40), (2, 1, 10)]
    flops_per_pair = 2 * LAYERS * HEADS * 2 * HEAD_DIM
    standard = attention_cost(sequences, kind=AttentionKind.STANDARD)
    assert standard.flops == 3 * 41 * flops_per_pair
    assert standard.flops_dense == (41 + 22) * flops_per_pair
    assert standard.traffic.scores == 4 * LAYERS * HEADS * 3 * 41 * 2
    flash = attention_cost(sequences)
    assert flash.flops == flash.flops_dense == (41 + 22) * flops_per_pair
    views = attention_cost(sequences, kind=AttentionKind.STANDARD, access=KvAccess())
    assert views.flops == (41 + 22) * flops_per_pair


@pytest.mark.parametrize(
    ("kv_dtype", "head_dim", "expected"),
    [
        ("bf16", 64, 2.0),
        ("fp32", 64, 4.0),
        ("fp8", 64, 1.0),
        ("int8", 64, 1.0625),
        ("int8", 128, 1.03125),
    ],
)
def test_a_number_of_the_cache_and_its_share_of_a_scale(
    kv_dtype: str, head_dim: int, expected: float
) -> None:
    assert kv_bytes_per_number(kv_dtype, head_dim) == expected
