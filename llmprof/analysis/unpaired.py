"""Two groups of launches that were not interleaved: the weaker evidence of saved runs.

The unit is the launch. Rounds of one process share its memory layout, its caches and its neighbours;
taking them for independent samples finds differences between two launches of the same code.
Source: Mann and Whitney 1947; Hollander, Wolfe and Chicken, section 4.1 to 4.3.
"""

from functools import lru_cache
from itertools import count
from math import comb, exp

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmprof.analysis.statistics import CONFIDENCE
from llmprof.schema.measurement import Estimate

MIN_LAUNCHES = 4
"""A side. From here on a two-sided 95 % test can reject: 2 / C(8, 4) = 2.9 %."""


@lru_cache(maxsize=256)
def rank_sum_cdf(first: int, second: int) -> NDArray[np.float64]:
    """P(U <= u) for u = 0 ... first x second where the groups do not differ, exact.

    U counts the pairs in which the second group's value is the smaller one.
    """
    counts = np.zeros((first + 1, first * second + 1))
    counts[0, 0] = 1.0
    for rank in range(1, first + second + 1):  # the value of this rank is of the first group or not
        for taken in range(min(first, rank), 0, -1):
            below = rank - taken  # values of the second group beneath it
            if below <= second:
                counts[taken, below:] += counts[taken - 1, : counts.shape[1] - below]
    return np.cumsum(counts[first]) / comb(first + second, first)


def least_p_value(first: int, second: int) -> float:
    """One-sided: where every launch of one group lies above every launch of the other."""
    return 1 / comb(first + second, first)


def launches_needed(alpha: float) -> int:
    """A side, so that a test at this level can show anything."""
    return next(one for one in count(MIN_LAUNCHES) if least_p_value(one, one) <= alpha)


def log_differences(baseline: ArrayLike, candidate: ArrayLike) -> NDArray[np.float64]:
    """ln(candidate_j / baseline_i) of every pair, ascending."""
    base, cand = np.asarray(baseline, dtype=float), np.asarray(candidate, dtype=float)
    return np.sort(np.log(cand[:, None] / base[None, :]).ravel())


def p_value_larger(baseline: ArrayLike, candidate: ArrayLike) -> float:
    """One-sided: the chance of a candidate this much above the baseline where they do not differ.

    Ties speak against a difference.
    """
    differences = log_differences(baseline, candidate)
    against = int(np.searchsorted(differences, 0.0, side="right"))
    return float(min(rank_sum_cdf(np.size(baseline), np.size(candidate))[against], 1.0))


def launch_ratio(
    baseline: ArrayLike, candidate: ArrayLike, confidence: float = CONFIDENCE
) -> Estimate:
    """Candidate over baseline: Hodges-Lehmann shift of logarithms, with its exact interval.

    `Estimate.confidence` is the true coverage; 0 for one launch a side, which has no interval.
    """
    differences = log_differences(baseline, candidate)
    cdf = rank_sum_cdf(np.size(baseline), np.size(candidate))
    rank = max(int(np.searchsorted(cdf, (1 - confidence) / 2, side="right")) - 1, 0)
    point, low, high = (
        float(np.median(differences)),
        float(differences[rank]),
        float(differences[-1 - rank]),
    )
    return Estimate(
        point=exp(point),
        low=exp(min(low, point)),
        high=exp(max(high, point)),
        confidence=max(0.0, 1 - 2 * float(cdf[rank])),
        num_samples=min(np.size(baseline), np.size(candidate)),
    )
