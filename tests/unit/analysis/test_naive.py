"""The rule of thumb that most people use, by hand."""

import pytest

from llmprof.analysis.naive import bare_roofline_s, naive_forecasts
from llmprof.analysis.rates import Rates
from llmprof.schema.cost import (
    ByteTraffic,
    OpCost,
    OpGroup,
    Phase,
    SequenceShape,
    StepCost,
    StepShape,
)

RATES = Rates(1e9, 1e12, "bf16", {})


def step(weights: float, activations: float, flops: float) -> StepCost:
    shape = StepShape(
        phase=Phase.DECODE,
        sequences=(SequenceShape(new_tokens=1, cached_tokens=1),),
        logit_rows=1,
    )
    op = OpCost(
        name="lm_head",
        group=OpGroup.LM_HEAD,
        calls=1,
        compute_dtype="bf16",
        flops=flops,
        flops_dense=flops,
        flops_causal=flops,
        traffic=ByteTraffic(weights=weights, activations=activations),
    )
    return StepCost(shape=shape, ops=(op,))


def test_only_bytes_that_must_move_count() -> None:
    """Half the weights, and twice as many activations, which stay in caches."""
    base, target = step(4e6, 1e6, 1e6), step(2e6, 2e6, 1e6)
    found = naive_forecasts(base, target, RATES, RATES, base_step_s=0.010)
    assert found.byte_ratio_step_s == pytest.approx(0.005)
    assert found.roofline_step_s == pytest.approx(0.005)
    assert bare_roofline_s(target, RATES) == pytest.approx(0.002)


def test_the_bare_roofline_sees_where_arithmetic_takes_over() -> None:
    """4 ms of bytes become 8 ms of arithmetic."""
    base, target = step(4e6, 0.0, 1e6), step(4e6, 0.0, 8e9)
    found = naive_forecasts(base, target, RATES, RATES, base_step_s=0.010)
    assert found.byte_ratio_step_s == pytest.approx(0.010)
    assert found.roofline_step_s == pytest.approx(0.020)
