import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprof.analysis.statistics import interval_rank, median_estimate, reciprocal

positive = st.floats(min_value=1e-6, max_value=1e6, allow_nan=False)
samples = st.lists(positive, min_size=1, max_size=40)


@given(samples, st.randoms(use_true_random=False))
def test_order_does_not_matter(values: list[float], source: random.Random) -> None:
    shuffled = list(values)
    source.shuffle(shuffled)
    assert median_estimate(shuffled) == median_estimate(values)


@given(samples, st.sampled_from([2.0**-20, 0.5, 1024.0, 2.0**30]))
def test_a_change_of_unit_changes_the_numbers_alone(values: list[float], factor: float) -> None:
    one, other = median_estimate(values), median_estimate([factor * value for value in values])
    assert (other.point, other.low, other.high) == (
        factor * one.point,
        factor * one.low,
        factor * one.high,
    )
    assert other.confidence == one.confidence


@given(samples)
def test_the_interval_lies_within_the_samples(values: list[float]) -> None:
    estimate = median_estimate(values)
    assert min(values) <= estimate.low <= estimate.point <= estimate.high <= max(values)


@given(st.lists(positive, min_size=2, max_size=40), positive)
def test_a_far_outlier_moves_the_median_by_one_rank_at_most(
    values: list[float], scale: float
) -> None:
    next_rank = sorted(values)[min(len(values) // 2 + 1, len(values) - 1)]
    assert median_estimate([*values, 1e9 * scale + max(values)]).point <= next_rank


@given(st.integers(min_value=1, max_value=300), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_coverage_is_reached_from_the_least_number_on(num_samples: int, confidence: float) -> None:
    rank, coverage = interval_rank(num_samples, confidence)
    assert 1 <= rank <= (num_samples + 1) // 2
    if 1 - 2 / 2**num_samples >= confidence:
        assert coverage >= confidence
    else:
        assert rank == 1


@given(samples, positive)
def test_a_rate_and_its_time_multiply_to_the_work(values: list[float], work: float) -> None:
    time_s = median_estimate(values)
    rate = reciprocal(time_s, work)
    assert rate.point * time_s.point == pytest.approx(work)
    assert rate.low * time_s.high == pytest.approx(work)
