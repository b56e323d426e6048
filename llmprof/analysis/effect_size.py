"""How small a difference so many pairs can show: the noise floor of a paired comparison."""

from math import ceil, expm1, log1p, sqrt

import numpy as np
from numpy.typing import ArrayLike

ALPHA = 0.025
"""One-sided."""
POWER = 0.80
_NORMAL_SUM = 1.96 + 0.84
"""Quantiles of 1 - ALPHA and POWER."""


def pair_spread(differences: ArrayLike) -> float | None:
    """Standard deviation of paired log ratios; None for fewer than two pairs.

    Of an A/A run, in which both arms are the same, it is the machine's noise alone.
    """
    values = np.asarray(differences, dtype=float)
    return float(np.std(values, ddof=1)) if values.size > 1 else None


def minimum_detectable(spread: float, num_pairs: int) -> float | None:
    """Relative difference that so many pairs of such spread show with a power of 80 %.

    exp((t(0.975) + t(0.80)) s / sqrt(n)) - 1 with n - 1 degrees of freedom; None for fewer than two.
    Source: the power of the paired t-test, which the signed-rank test reaches to 5 % of n.
    """
    return None if num_pairs < 2 else detectable(spread / sqrt(num_pairs), num_pairs - 1)


def detectable(standard_error: float, degrees_of_freedom: int) -> float:
    """Relative difference that is shown with a power of 80 % where its logarithm is known so well."""
    from scipy.special import stdtrit

    quantiles = stdtrit(degrees_of_freedom, 1 - ALPHA) + stdtrit(degrees_of_freedom, POWER)
    return expm1(float(quantiles) * standard_error)


def pairs_needed(spread: float, relative_difference: float) -> int:
    """Pairs of such spread that show a relative difference (above zero) with a power of 80 %."""
    return ceil((_NORMAL_SUM * spread / log1p(relative_difference)) ** 2) + 2
