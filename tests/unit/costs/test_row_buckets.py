"""Padding of recorded steps: which rows, and what they move."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprof.costs.row_buckets import padded_rows, row_buckets, with_padding
from llmprof.schema.cost import (
    ByteTraffic,
    OpCost,
    OpGroup,
    Phase,
    SequenceShape,
    StepCost,
    StepShape,
)


def cost(rows: int, *, cached: int = 7) -> StepCost:
    traffic = ByteTraffic(weights=1000.0, kv_read=50.0, activations=30.0 * rows, logits=6.0 * rows)
    op = OpCost(
        name="lm_head",
        group=OpGroup.LM_HEAD,
        calls=1,
        compute_dtype="bf16",
        flops=100.0 * rows,
        flops_dense=0.0,
        flops_causal=0.0,
        traffic=traffic,
    )
    sequence = SequenceShape(count=rows, new_tokens=1, cached_tokens=cached)
    shape = StepShape(phase=Phase.DECODE, sequences=(sequence,), logit_rows=rows)
    return StepCost(shape=shape, ops=(op,))


@pytest.mark.parametrize(
    ("most", "expected"), [(1, (1,)), (2, (1, 2)), (5, (1, 2, 4, 5)), (16, (1, 2, 4, 8, 16))]
)
def test_powers_of_two_and_the_full_batch(most: int, expected: tuple[int, ...]) -> None:
    assert row_buckets(most) == expected


@given(st.integers(1, 4096), st.data())
def test_less_than_half_of_a_bucket_is_padding(most: int, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, most))
    padded = padded_rows(rows, row_buckets(most))
    assert rows <= padded <= min(2 * rows - 1, most) or padded == rows == most


def test_padding_is_traffic_of_its_own_and_no_work() -> None:
    """3 rows in a bucket of 4: a third more of what goes with rows, nothing more of the weights."""
    padded, plain = with_padding(cost(3), (1, 2, 4)), cost(3)
    assert padded.traffic.padding == pytest.approx(30.0 + 6.0)
    assert padded.traffic.required == pytest.approx(plain.traffic.required + 36.0)
    assert padded.flops == plain.flops


def test_full_buckets_and_prompts_have_none() -> None:
    assert with_padding(cost(4), (1, 2, 4)) == cost(4)
    assert with_padding(cost(3, cached=0), (4,)) == cost(3, cached=0)
    assert with_padding(cost(3), ()) == cost(3)
