"""The rule of thumb that most people use, by hand."""

import pytest

from llmprof.analysis.naive import bare_roofline_s, naive_forecasts
from llmprof.analysis.rates import Rates
from tests.one_op import step_of_one_op

RATES = Rates(1e9, 1e12, "bf16", {})


def test_only_bytes_that_must_move_count() -> None:
    """Half the weights, and twice as many activations, which stay in caches."""
    base, target = (
        step_of_one_op(4e6, activations=1e6, flops=1e6),
        step_of_one_op(2e6, activations=2e6, flops=1e6),
    )
    found = naive_forecasts(base, target, RATES, RATES, base_step_s=0.010)
    assert found.byte_ratio_step_s == pytest.approx(0.005)
    assert found.roofline_step_s == pytest.approx(0.005)
    assert bare_roofline_s(target, RATES) == pytest.approx(0.002)


def test_the_bare_roofline_sees_where_arithmetic_takes_over() -> None:
    """4 ms of bytes become 8 ms of arithmetic."""
    base, target = (
        step_of_one_op(4e6, activations=0.0, flops=1e6),
        step_of_one_op(4e6, activations=0.0, flops=8e9),
    )
    found = naive_forecasts(base, target, RATES, RATES, base_step_s=0.010)
    assert found.byte_ratio_step_s == pytest.approx(0.010)
    assert found.roofline_step_s == pytest.approx(0.020)
