"""Two arms measured in turn, round by round: how far apart they are, and whether that is shown.

A pair is one round of each arm, taken one after the other on the same machine. Its log ratio is free
of whatever drifts in both. Pairs are judged by the Hodges-Lehmann estimate with the exact bounds of
Wilcoxon's signed-rank test: no distribution assumed, and a few spoiled pairs hardly move them.

Sources: Hodges and Lehmann 1963; Hollander, Wolfe and Chicken, Nonparametric Statistical Methods,
3rd edition, section 3.1 to 3.3; Holm 1979 for several tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmprof.analysis.statistics import CONFIDENCE
from llmprof.schema.measurement import Estimate


@dataclass(frozen=True, slots=True)
class Shift:
    """Where paired differences lie: the estimate, and a bound on either side of it."""

    estimate: float
    lower: float
    """One-sided: the true shift is below it with a probability of at most alpha."""
    upper: float
    """Minus and plus infinity where there are too few pairs for a bound."""


def log_ratios(baseline: ArrayLike, candidate: ArrayLike) -> NDArray[np.float64]:
    """ln(candidate / baseline) per pair; 0.01 is one per cent more.

    Raises:
        ValueError: no pairs, arms of different length, or a value that is not positive and finite.
    """
    base, cand = np.asarray(baseline, dtype=float), np.asarray(candidate, dtype=float)
    if base.shape != cand.shape or base.ndim != 1 or base.size == 0:
        raise ValueError("both arms need the same number of rounds, at least one")
    both = np.concatenate((base, cand))
    if not np.isfinite(both).all() or (both <= 0).any():
        raise ValueError("a ratio needs positive, finite values")
    return np.asarray(np.log(cand / base), dtype=np.float64)


def hodges_lehmann(differences: ArrayLike, alpha: float) -> Shift:
    """Median of the Walsh averages (d_i + d_j) / 2, i <= j, each bound at one-sided level alpha."""
    walsh = walsh_averages(differences)
    rank = bound_rank(np.size(differences), alpha)
    middle = float(np.median(walsh))
    if rank < 0:
        return Shift(middle, -inf, inf)
    return Shift(middle, float(walsh[rank]), float(walsh[-1 - rank]))


def walsh_averages(differences: ArrayLike) -> NDArray[np.float64]:
    """All n (n + 1) / 2 means of two differences, each with itself too, ascending."""
    values = np.asarray(differences, dtype=float)
    if values.size == 0:
        raise ValueError("no pairs")
    first, second = np.triu_indices(values.size)
    return np.sort((values[first] + values[second]) / 2)


@lru_cache(maxsize=256)
def signed_rank_cdf(num_pairs: int) -> NDArray[np.float64]:
    """P(W+ <= k) for k = 0 ... n (n + 1) / 2 where the arms do not differ, exact."""
    chances = np.zeros(num_pairs * (num_pairs + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, num_pairs + 1):  # each rank is positive with a chance of one half
        with_rank = np.zeros_like(chances)
        with_rank[rank:] = chances[:-rank]
        chances = (chances + with_rank) / 2
    return np.cumsum(chances)


def bound_rank(num_pairs: int, alpha: float) -> int:
    """Largest k with P(W+ <= k) <= alpha: the place of the lower bound among the Walsh averages.

    -1 where not even the outermost average is a bound at this level.
    """
    return int(np.searchsorted(signed_rank_cdf(num_pairs), alpha, side="right")) - 1


def p_value_above_zero(differences: ArrayLike) -> float:
    """One-sided signed-rank test of "the shift is above zero"; a tie at zero speaks against it.

    It is the smallest alpha whose lower bound is above zero, so test and bound never disagree.
    """
    walsh = walsh_averages(differences)
    against = int(np.searchsorted(walsh, 0.0, side="right"))
    return float(min(signed_rank_cdf(np.size(differences))[against], 1.0))


def paired_ratio(
    baseline: ArrayLike, candidate: ArrayLike, confidence: float = CONFIDENCE
) -> Estimate:
    """Candidate over baseline, with its two-sided interval.

    `Estimate.confidence` is the true coverage: of fewer than six pairs the outermost averages cover
    1 - 2 / 2^n, and a single pair has no interval (0).

    Raises:
        ValueError: as `log_ratios`.
    """
    differences = log_ratios(baseline, candidate)
    walsh = walsh_averages(differences)
    num_pairs = differences.size
    rank = max(bound_rank(num_pairs, (1 - confidence) / 2), 0)
    point, low, high = float(np.median(walsh)), float(walsh[rank]), float(walsh[-1 - rank])
    return Estimate(
        point=exp(point),
        low=exp(min(low, point)),
        high=exp(max(high, point)),
        confidence=max(0.0, 1 - 2 * float(signed_rank_cdf(num_pairs)[rank])),
        num_samples=num_pairs,
    )


def holm_adjusted(p_values: Sequence[float]) -> tuple[float, ...]:
    """Each p as it stands among the others: at most alpha where Holm rejects at alpha.

    Step-down: of m values the smallest times m, the next times m - 1, ..., each no less than the one
    before it and 1 at most.
    """
    adjusted = [1.0] * len(p_values)
    least = 0.0
    for done, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = min(1.0, max(least, p_values[index] * (len(p_values) - done)))
        adjusted[index] = least
    return tuple(adjusted)


def holm(p_values: Sequence[float], alpha: float) -> tuple[bool, ...]:
    """Which of several hypotheses to reject so that one false rejection has a chance of alpha."""
    return tuple(one <= alpha for one in holm_adjusted(p_values))
