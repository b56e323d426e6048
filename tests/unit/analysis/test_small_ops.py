import pytest

from llmprof.analysis.small_ops import SizedTime, SmallOps
from llmprof.schema.cost import OpGroup, Phase

TWO_SIZES = SmallOps(
    {
        OpGroup.NORM: {
            Phase.DECODE: SizedTime(size_bytes=100.0, time_s=2e-4),
            Phase.PREFILL: SizedTime(size_bytes=10_100.0, time_s=12e-4),
        }
    }
)
ONE_SIZE = SmallOps({OpGroup.NORM: {Phase.DECODE: SizedTime(size_bytes=100.0, time_s=2e-4)}})


def test_between_two_sizes_time_is_a_line() -> None:
    span, _ = TWO_SIZES.predict(OpGroup.NORM, Phase.DECODE, 1_100.0)
    assert span.point == pytest.approx(3e-4)
    assert span.low < 3e-4 < span.high


def test_the_same_size_is_the_same_time() -> None:
    span, _ = TWO_SIZES.predict(OpGroup.NORM, Phase.DECODE, 100.0)
    assert (span.low, span.point, span.high) == (2e-4, 2e-4, 2e-4)


def test_one_size_leaves_all_between_no_growth_and_full_growth_open() -> None:
    span, basis = ONE_SIZE.predict(OpGroup.NORM, Phase.DECODE, 800.0)
    assert span.low == pytest.approx(2e-4)
    assert span.high == pytest.approx(16e-4)
    assert "one size" in basis
