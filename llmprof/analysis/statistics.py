"""Medians and their intervals: no distribution assumed, the coverage stated as it is."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

from llmprof.schema.measurement import Estimate

CONFIDENCE = 0.95
FEW_SAMPLES = 6
"""From here on min..max of independent samples covers the median with 95 %."""


def median_estimate(samples: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Median with the order-statistic interval [x_(k), x_(n+1-k)].

    The interval's coverage is exact for any continuous distribution of independent samples,
    1 - 2 P(Binomial(n, 1/2) < k), and that is what `Estimate.confidence` says: below six samples
    it is min..max with less than 95 %, and 0 for one sample, which has no interval.

    Source: David and Nagaraja, Order Statistics, 3rd edition, section 7.1.
    Errors: ValueError for no samples.
    """
    return bounded_estimate(samples, samples, samples, confidence=confidence)


def ratio_estimate(
    numerators: Sequence[float],
    denominators: Sequence[float],
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Median of pairwise ratios: what drifts in both of a pair cancels."""
    return median_estimate(
        [above / below for above, below in zip(numerators, denominators, strict=True)], confidence
    )


def bounded_estimate(
    points: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
    *,
    center: float | None = None,
    num_independent: int | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Median of samples that are themselves known only to lie between `lows` and `highs`.

    `center` replaces the median as point estimate (the interval is widened to hold it);
    `num_independent` is the number of independent samples where several share a source.
    """
    independent = min(num_independent or len(points), len(points))
    rank, coverage = interval_rank(independent, confidence)
    point = float(np.median(points)) if center is None else center
    return Estimate(
        point=point,
        low=min(sorted(lows)[rank - 1], point),
        high=max(sorted(highs)[-rank], point),
        confidence=coverage,
        num_samples=independent,
    )


@lru_cache(maxsize=256)
def interval_rank(num_samples: int, confidence: float) -> tuple[int, float]:
    """Largest rank k whose interval covers the median with `confidence`, and its true coverage.

    Where not even k = 1 (min..max) covers so much, k = 1 with the coverage that it has.
    """
    if num_samples < 1:
        raise ValueError("an estimate needs at least one sample")
    outside = 1  # 2^n P(Binomial(n, 1/2) < k), exact
    rank = 1
    while rank < num_samples // 2:
        wider = outside + comb(num_samples, rank)
        if _coverage(wider, num_samples) < confidence:
            break
        outside, rank = wider, rank + 1
    return rank, _coverage(outside, num_samples)


def _coverage(outside: int, num_samples: int) -> float:
    total = 1 << num_samples
    return (total - 2 * outside) / total


def reciprocal(estimate: Estimate, numerator: float) -> Estimate:
    """`numerator` / estimate, for a positive estimate: a rate from a time."""
    return Estimate(
        point=numerator / estimate.point,
        low=numerator / estimate.high,
        high=numerator / estimate.low,
        confidence=estimate.confidence,
        num_samples=estimate.num_samples,
    )


def relative_spread(samples: Iterable[float]) -> float:
    """Interquartile range over median; of fewer than six samples the whole range over it.

    Quartiles of so few are interpolated between neighbours and hide what lies outside: of four
    samples one may be anything.
    """
    values = np.fromiter(samples, dtype=float)
    outer = (0.25, 0.75) if len(values) >= FEW_SAMPLES else (0.0, 1.0)
    low, middle, high = np.quantile(values, (outer[0], 0.5, outer[1]))
    return float((high - low) / middle)


def resistant_slope(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Slope of y over x through the medians of the outer thirds: outliers hardly move it.

    0 where x does not vary. Source: Tukey, Exploratory Data Analysis, 1977, the resistant line.
    """
    lower, upper = np.quantile(x, (1 / 3, 2 / 3))
    low, high = x <= lower, x >= upper
    run = np.median(x[high]) - np.median(x[low])
    return float((np.median(y[high]) - np.median(y[low])) / run) if run else 0.0
