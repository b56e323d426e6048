import numpy as np
import pytest
from scipy.stats import binom

from llmprof.analysis.statistics import (
    bounded_estimate,
    interval_rank,
    median_estimate,
    ratio_estimate,
    reciprocal,
    relative_spread,
    resistant_slope,
)


@pytest.mark.parametrize(
    ("num_samples", "rank", "coverage"),
    [  # published tables of the order-statistic interval of the median at 95 %
        (6, 1, 0.9688),
        (8, 1, 0.9922),
        (9, 2, 0.9609),
        (12, 3, 0.9614),
        (20, 6, 0.9586),
        (50, 18, 0.9672),
    ],
)
def test_rank_agrees_with_the_published_tables(
    num_samples: int, rank: int, coverage: float
) -> None:
    found, covered = interval_rank(num_samples, 0.95)
    assert found == rank
    assert covered == pytest.approx(coverage, abs=5e-5)


@pytest.mark.parametrize("num_samples", [2, 5, 7, 31, 200, 1001])
def test_coverage_is_that_of_the_binomial(num_samples: int) -> None:
    rank, coverage = interval_rank(num_samples, 0.95)
    assert coverage == pytest.approx(1 - 2 * binom.cdf(rank - 1, num_samples, 0.5), abs=1e-12)
    if rank < num_samples // 2:
        assert 1 - 2 * binom.cdf(rank, num_samples, 0.5) < 0.95


def test_the_two_middle_samples_are_the_narrowest_interval() -> None:
    assert interval_rank(4, 0.30) == (2, 0.375)  # 1 - 2 (1 + 4) / 2^4
    assert interval_rank(2, 0.30) == (1, 0.5)


def test_few_samples_state_the_coverage_that_they_have() -> None:
    estimate = median_estimate([3.0, 1.0, 2.0, 5.0, 4.0])
    assert (estimate.point, estimate.low, estimate.high) == (3.0, 1.0, 5.0)
    assert estimate.confidence == 0.9375  # 1 - 2 / 2^5


def test_one_sample_has_no_interval() -> None:
    estimate = median_estimate([7.0])
    assert (estimate.low, estimate.high, estimate.confidence) == (7.0, 7.0, 0.0)


def test_no_sample_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        median_estimate([])


def test_interval_covers_the_true_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    runs, inside = 4000, 0
    for samples in rng.lognormal(0.0, 1.0, size=(runs, 9)):  # true median 1
        estimate = median_estimate([float(value) for value in samples])
        inside += estimate.low <= 1.0 <= estimate.high
    spread = (0.9609 * 0.0391 / runs) ** 0.5
    assert abs(inside / runs - 0.9609) < 4 * spread


def test_ratio_of_pairs_cancels_a_common_drift() -> None:
    drift = np.array([1.0, 1.3, 0.7, 1.9, 1.1, 0.9, 1.5, 1.2])
    estimate = ratio_estimate(list(3.0 * drift), list(2.0 * drift))
    assert estimate.low == pytest.approx(1.5)
    assert estimate.high == pytest.approx(1.5)


def test_bounds_of_the_samples_widen_the_interval() -> None:
    estimate = bounded_estimate([1.0] * 6, [0.8] * 6, [1.3] * 6)
    assert (estimate.point, estimate.low, estimate.high) == (1.0, 0.8, 1.3)


def test_a_center_outside_the_samples_stretches_the_interval() -> None:
    assert bounded_estimate([2.0] * 6, [2.0] * 6, [2.0] * 6, center=1.0).low == 1.0


def test_shared_samples_are_not_counted_twice() -> None:
    values = [float(value) for value in range(12)]
    estimate = bounded_estimate(values, values, values, num_independent=3)
    assert (estimate.low, estimate.high) == (0.0, 11.0)
    assert (estimate.confidence, estimate.num_samples) == (0.75, 3)


def test_reciprocal_turns_the_interval_around() -> None:
    rate = reciprocal(median_estimate([0.02, 0.01, 0.04, 0.02, 0.02, 0.02]), 8)
    assert (rate.point, rate.low, rate.high) == (400.0, 200.0, 800.0)


def test_relative_spread_is_quartiles_over_median() -> None:
    assert relative_spread([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]) == pytest.approx(3 / 4)


def test_of_few_samples_the_spread_is_their_range() -> None:
    """The quartiles of 10, 10, 10 and 14 are 10 and 11: what lies outside must not vanish."""
    assert relative_spread([10.0, 10.0, 10.0, 14.0]) == pytest.approx(0.4)
    # Of six the quartiles are taken: 10.25 and 10.75 around 10.5
    assert relative_spread([10.0, 10.2, 10.4, 10.6, 10.8, 14.0]) == pytest.approx(0.5 / 10.5)


def test_a_slope_between_few_values_of_x_is_that_of_their_medians() -> None:
    """All steps have one of two contexts, and one of them was held up."""
    x, y = np.array([0.0, 0.0, 0.0, 5.0, 5.0, 5.0]), np.array([1.0, 1.0, 90.0, 2.0, 2.0, 2.0])
    assert resistant_slope(x, y) == pytest.approx(0.2)
    assert resistant_slope(np.ones(3), np.arange(3.0)) == 0
