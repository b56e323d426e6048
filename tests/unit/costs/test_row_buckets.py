"""Padding of recorded steps: which rows, and what they move."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprof.costs.row_buckets import buckets_of, padded_rows, row_buckets, with_padding
from llmprof.costs.step import step_cost
from llmprof.planning.formats import planned_options
from llmprof.schema.cost import (
    ByteTraffic,
    OpCost,
    OpGroup,
    Phase,
    SequenceShape,
    StepCost,
    StepShape,
)
from llmprof.schema.settings import RunConfig
from tests.smollm2 import a_manifest, a_model


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


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ({"execution": {"mode": "cuda_graph"}}, ()),
        ({"batching": {"policy": "continuous", "max_sequences": 6}}, ()),
        ({"execution": {"mode": "compiled"}, "device": "cuda"}, ()),
        (
            {
                "execution": {"mode": "compiled"},
                "batching": {"policy": "continuous", "max_sequences": 6},
            },
            (),
        ),
        (
            {
                "device": "cuda:0",
                "execution": {"mode": "compiled"},
                "batching": {"policy": "continuous", "max_sequences": 6},
            },
            (1, 2, 4, 6),
        ),
        (
            {
                "execution": {"mode": "cuda_graph"},
                "batching": {"policy": "continuous", "max_sequences": 6},
            },
            (1, 2, 4, 6),
        ),
    ],
)
def test_graphs_of_batches_that_change_are_padded(
    groups: dict[str, object], expected: tuple[int, ...]
) -> None:
    config = RunConfig.model_validate({"model": "smollm2-135m", **groups})
    assert buckets_of(config) == expected


def test_a_plan_of_padded_steps_counts_the_padding() -> None:
    """9 sequences in a graph of 16: seven rows more of the logits, 49152 numbers of 2 bytes each."""
    served = {
        "model": "smollm2-135m",
        "kv_cache": {"layout": "paged"},
        "batching": {"policy": "continuous", "max_sequences": 16},
    }
    eager, graphs = (
        planned_options(
            a_model(),
            RunConfig.model_validate({**served, "execution": {"mode": mode}}),
            "bf16",
        )
        for mode in ("eager", "cuda_graph")
    )
    sequence = SequenceShape(count=9, new_tokens=1, cached_tokens=100)
    shape = StepShape(phase=Phase.DECODE, sequences=(sequence,), logit_rows=9)
    plain, padded = (step_cost(a_model(), a_manifest(), shape, one) for one in (eager, graphs))
    head = next(op for op in padded.ops if op.name == "lm_head")
    assert not plain.traffic.padding
    assert head.traffic.padding >= 7 * 49152 * 2
    assert padded.traffic.weights == plain.traffic.weights


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
