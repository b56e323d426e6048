import math

import numpy as np
import pytest

from llmprof.analysis.effect_size import (
    detectable,
    minimum_detectable,
    pair_spread,
    pairs_needed,
)


@pytest.mark.parametrize(
    ("num_pairs", "spread", "percent"),
    [(6, 0.01, 1.44), (12, 0.01, 0.89), (12, 0.03, 2.70), (24, 0.02, 1.20), (24, 0.05, 3.03)],
)
def test_detectable_difference_of_known_noise(
    num_pairs: int, spread: float, percent: float
) -> None:
    found = minimum_detectable(spread, num_pairs)
    assert found is not None
    assert 100 * found == pytest.approx(percent, abs=0.006)


def test_the_detectable_difference_is_found_in_four_of_five() -> None:
    rng = np.random.default_rng(2)
    shift = math.log1p(minimum_detectable(0.03, 12) or 0.0)
    noise = rng.normal(shift, 0.03, size=(4000, 12))
    t = noise.mean(axis=1) / (noise.std(axis=1, ddof=1) / math.sqrt(12))
    assert np.mean(t > 2.201) == pytest.approx(0.80, abs=0.03)  # t table: 11 degrees of freedom


def test_the_spread_of_pairs_is_that_of_a_sample() -> None:
    """Of 1 % less and 1 % more: by n - 1, as what lies behind it is estimated."""
    assert pair_spread([-0.01, 0.01]) == pytest.approx(0.01 * math.sqrt(2))


def test_one_pair_shows_nothing() -> None:
    assert pair_spread([0.1]) is None
    assert minimum_detectable(0.01, 1) is None


def test_pairs_needed_grow_with_the_square_of_the_noise() -> None:
    assert pairs_needed(0.05, 0.05) == math.ceil((2.8 * 0.05 / math.log(1.05)) ** 2) + 2
    assert pairs_needed(0.02, 0.05) < pairs_needed(0.04, 0.05)


@pytest.mark.parametrize(
    ("degrees", "t_975", "t_80"), [(3, 3.182, 0.978), (11, 2.201, 0.876), (23, 2.069, 0.858)]
)
def test_a_logarithm_known_by_few_takes_a_larger_difference(
    degrees: int, t_975: float, t_80: float
) -> None:
    """By a printed table of Student's t."""
    assert detectable(0.01, degrees) == pytest.approx(math.expm1(0.01 * (t_975 + t_80)), rel=1e-3)
