"""Intervals in words."""

import pytest

from llmprof import units
from llmprof.renderers.estimates import confidence, interval, point_and_interval, shared_confidence
from llmprof.schema.measurement import Estimate


def estimate(low: float, point: float, high: float, level: float = 0.95, n: int = 8) -> Estimate:
    return Estimate(point=point, low=low, high=high, confidence=level, num_samples=n)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (estimate(0.0129, 0.0132, 0.0136), "13.2 ms [12.9, 13.6]"),
        (estimate(950e-6, 1.01e-3, 1.02e-3), "1.01 ms [950 µs, 1.02 ms]"),
        (estimate(900e-6, 910e-6, 920e-6, level=0.875, n=4), "910 µs [900, 920]"),
        (estimate(0.5, 0.5, 0.5, level=0.0, n=1), "500 ms (one sample)"),
        (estimate(-2e-3, -1e-3, -0.5e-3), "-1.00 ms [-2.00 ms, -500 µs]"),
        (estimate(0.0, 0.0, 0.0), "0 s [0, 0]"),
    ],
)
def test_point_and_interval(value: Estimate, expected: str) -> None:
    assert point_and_interval(value, units.seconds) == expected


def test_interval_alone_keeps_its_unit() -> None:
    assert interval(estimate(0.0129, 0.0132, 0.0136), units.seconds) == "[12.9, 13.6] ms"
    assert interval(estimate(0.58, 0.6, 0.64), units.percent) == "[58, 64] %"
    assert interval(estimate(62.2, 64.1, 66.0), units.significant) == "[62.2, 66.0]"


def test_confidence_is_said_with_its_samples() -> None:
    assert confidence(estimate(1, 2, 3, level=0.9922)) == "99 % of 8"
    assert confidence(estimate(1, 1, 1, level=0.0, n=1)) == "one sample"


def test_weakest_interval_speaks_for_all() -> None:
    both = [estimate(1, 2, 3, level=0.99), estimate(1, 2, 3, level=0.875, n=4)]
    assert shared_confidence(both) == "88 % intervals"
    assert shared_confidence([*both, estimate(1, 1, 1, level=0.0, n=1)]) == "no intervals"
    assert shared_confidence([]) == "no intervals"
