from itertools import combinations

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from llmprof.analysis.unpaired import launch_ratio, p_value_larger, rank_sum_cdf


def test_the_distribution_is_that_of_all_arrangements() -> None:
    """Three of seven ranks can be taken in 35 ways; U is their sum less 1 + 2 + 3."""
    values = [sum(taken) - 6 for taken in combinations(range(1, 8), 3)]
    expected = [sum(one <= u for one in values) / 35 for u in range(13)]
    assert rank_sum_cdf(3, 4) == pytest.approx(expected)


@pytest.mark.parametrize(("first", "second"), [(4, 4), (5, 7), (8, 4)])
def test_the_test_agrees_with_scipy(first: int, second: int) -> None:
    rng = np.random.default_rng(first)
    for shift in (0.0, 0.02, 0.1):
        base = np.exp(rng.normal(0.0, 0.03, first))
        cand = np.exp(rng.normal(shift, 0.03, second))
        expected = mannwhitneyu(cand, base, alternative="greater", method="exact").pvalue
        assert p_value_larger(base, cand) == pytest.approx(expected)


def test_ratio_and_interval_of_two_launches_by_hand() -> None:
    """Ratios 2, 4, 1, 2: the median is 2, min to max covers 1 - 2/6."""
    ratio = launch_ratio([1.0, 2.0], [2.0, 4.0])
    assert (ratio.low, ratio.point, ratio.high) == pytest.approx((1.0, 2.0, 4.0))
    assert ratio.confidence == pytest.approx(1 - 2 / 6)


def test_one_launch_a_side_has_no_interval() -> None:
    assert launch_ratio([1.0], [1.1]).confidence == 0.0


def test_the_interval_covers_the_true_ratio_as_often_as_it_says() -> None:
    rng = np.random.default_rng(4)
    runs, inside, stated = 2000, 0, 0.0
    for noise in rng.normal(0.0, 0.02, size=(runs, 10)):
        ratio = launch_ratio(np.exp(noise[:5]), 1.05 * np.exp(noise[5:]))
        inside += ratio.low <= 1.05 <= ratio.high
        stated = ratio.confidence
    assert stated >= 0.95
    assert abs(inside / runs - stated) < 4 * (stated * (1 - stated) / runs) ** 0.5


def test_launches_of_the_same_code_seldom_differ() -> None:
    """Ten samples a side of one distribution with 8 % of spread: alarms stay under the level."""
    rng = np.random.default_rng(9)
    alarms = 0
    for values in rng.lognormal(0.0, 0.08, size=(1000, 20)):
        alarms += p_value_larger(values[:10], values[10:]) <= 0.025
    assert alarms / 1000 <= 0.025 + 4 * (0.025 * 0.975 / 1000) ** 0.5
