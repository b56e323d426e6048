"""The sentence about a comparison: its numbers must agree with each other as a reader does the sums."""

from llmprof.analysis.compare_headline import headline
from llmprof.analysis.metrics import TPOT, metric_named
from llmprof.schema.comparison import Basis, Change, MetricChange
from llmprof.schema.measurement import Estimate


def exactly(value: float, num_samples: int = 8) -> Estimate:
    return Estimate(point=value, low=value, high=value, confidence=0.95, num_samples=num_samples)


def tpot(basis: Basis, ratio: float) -> MetricChange:
    return MetricChange(
        metric=metric_named(TPOT),
        baseline=exactly(0.020),
        candidate=exactly(0.014),
        ratio=exactly(ratio),
        basis=basis,
        p_value=0.0078,
        change=Change.BETTER,
    )


def test_a_ratio_of_pairs_says_so_since_it_is_not_that_of_the_two_medians() -> None:
    """14 over 20 is -30 %; the pairs say -32 %, and both may stand in one sentence."""
    assert "from 20.0 ms to 14.0 ms (-32 % pair by pair)" in headline(
        [tpot(Basis.PAIRED, 0.68)], ()
    )
    assert "from 20.0 ms to 14.0 ms (-30 %)" in headline([tpot(Basis.LAUNCHES, 0.70)], ())
