from itertools import product

import numpy as np
import pytest
from scipy.stats import wilcoxon

from llmprof.analysis.paired import (
    bound_rank,
    hodges_lehmann,
    holm,
    holm_adjusted,
    log_ratios,
    p_value_above_zero,
    paired_ratio,
    signed_rank_cdf,
)


@pytest.mark.parametrize(
    ("num_pairs", "alpha", "rank"),
    [  # printed tables of the signed-rank statistic
        (8, 0.05, 5),
        (10, 0.025, 8),
        (12, 0.025, 13),
        (15, 0.05, 30),
        (20, 0.025, 52),
        (5, 0.025, -1),  # 1 / 2^5 is more than 2.5 %
        (6, 0.0125, -1),
    ],
)
def test_ranks_agree_with_the_printed_tables(num_pairs: int, alpha: float, rank: int) -> None:
    assert bound_rank(num_pairs, alpha) == rank


def test_the_distribution_is_that_of_all_sign_patterns() -> None:
    """Of five pairs there are 32 patterns of signs, each as likely."""
    sums = [
        sum(rank for rank, sign in zip(range(1, 6), signs, strict=True) if sign)
        for signs in product((0, 1), repeat=5)
    ]
    expected = [sum(one <= k for one in sums) / 32 for k in range(16)]
    assert signed_rank_cdf(5) == pytest.approx(expected)


def test_many_pairs_do_not_overflow() -> None:
    assert signed_rank_cdf(1200)[-1] == pytest.approx(1.0)


def test_the_test_agrees_with_scipy() -> None:
    rng = np.random.default_rng(3)
    for num_pairs in (6, 9, 12, 20):
        for shift in (-0.5, 0.0, 0.3, 1.0):
            differences = rng.normal(shift, 1.0, num_pairs)
            expected = wilcoxon(differences, alternative="greater", method="exact").pvalue
            assert p_value_above_zero(differences) == pytest.approx(expected)
            assert (hodges_lehmann(differences, 0.025).lower > 0) == (expected <= 0.025)


def test_estimate_and_bounds_of_three_pairs_by_hand() -> None:
    """Walsh averages of 0, 2, 10: 0, 1, 2, 5, 6, 10."""
    shift = hodges_lehmann([0.0, 2.0, 10.0], alpha=0.125)  # P(W+ <= 0) = 1/8
    assert (shift.estimate, shift.lower, shift.upper) == (3.5, 0.0, 10.0)


def test_too_few_pairs_have_no_bound() -> None:
    shift = hodges_lehmann([0.1] * 5, alpha=0.025)
    assert (shift.lower, shift.upper) == (-np.inf, np.inf)


def test_equal_arms_are_no_difference() -> None:
    assert p_value_above_zero([0.0] * 12) == 1.0


def test_drift_common_to_both_arms_cancels() -> None:
    drift = np.exp(np.linspace(0.0, 0.7, 12))
    ratio = paired_ratio(2.0 * drift, 2.2 * drift)
    assert (ratio.low, ratio.point, ratio.high) == pytest.approx((1.1, 1.1, 1.1))


def test_one_spoiled_pair_hardly_moves_the_estimate() -> None:
    candidate = [1.02 + 0.001 * index for index in range(12)]
    spoiled = [*candidate[:-1], 3.0]
    clean, moved = (paired_ratio([1.0] * 12, arm).point for arm in (candidate, spoiled))
    assert abs(moved - clean) < 0.002


def test_a_ratio_states_its_true_coverage() -> None:
    assert paired_ratio([1.0], [2.0]).confidence == 0.0
    assert paired_ratio([1.0] * 4, [1.0, 2.0, 3.0, 4.0]).confidence == 1 - 2 / 16
    # Twelve pairs: P(W+ <= 13) = 87 / 4096.
    assert paired_ratio([1.0] * 12, [1.0] * 12).confidence == pytest.approx(1 - 174 / 4096)


def test_the_interval_covers_the_true_ratio_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    runs, inside = 3000, 0
    for noise in rng.normal(0.0, 0.05, size=(runs, 12)):
        ratio = paired_ratio(np.ones(12), 1.1 * np.exp(noise))
        inside += ratio.low <= 1.1 <= ratio.high
    expected = 1 - 174 / 4096
    assert abs(inside / runs - expected) < 4 * (expected * (1 - expected) / runs) ** 0.5


@pytest.mark.parametrize(
    ("baseline", "candidate"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([1.0], [np.nan])]
)
def test_what_has_no_ratio_is_refused(baseline: list[float], candidate: list[float]) -> None:
    with pytest.raises(ValueError, match=r"rounds|positive"):
        log_ratios(baseline, candidate)


def test_holm_adjusts_each_p_by_those_above_it() -> None:
    # Smallest first: 4 x 0.01, 3 x 0.015, 2 x 0.04 and 1 x 0.045, none less than the one before.
    assert holm_adjusted([0.04, 0.01, 0.045, 0.015]) == pytest.approx([0.08, 0.04, 0.08, 0.045])
    assert holm_adjusted([0.6, 0.7]) == (1.0, 1.0)
    assert holm_adjusted([]) == ()


def test_holm_steps_down() -> None:
    """0.01 <= 0.05/4, 0.015 <= 0.05/3, 0.04 > 0.05/2 and what follows is kept too."""
    assert holm([0.04, 0.01, 0.045, 0.015], 0.05) == (False, True, False, True)


def test_fifty_unchanged_metrics_seldom_raise_an_alarm() -> None:
    rng = np.random.default_rng(7)
    alarms = sum(any(holm(list(p), 0.05)) for p in rng.uniform(size=(2000, 50)))
    assert alarms / 2000 < 0.05 + 4 * (0.05 * 0.95 / 2000) ** 0.5
