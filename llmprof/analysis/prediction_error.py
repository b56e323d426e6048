"""How good predictions were: errors of the ratio to the base, cover and width of the intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

GOAL_MEDIAN = 0.08
GOAL_WORST = 0.20
GOAL_COVER = 0.85
GOAL_HALF_WIDTH = 0.15


@dataclass(frozen=True, slots=True)
class PredictedCase:
    """One phase of one change: ratios of the target's step to the base's."""

    model: str
    change: str
    phase: str
    tier: str
    predicted: float
    low: float
    high: float
    measured: float
    measured_low: float
    measured_high: float
    byte_ratio: float
    roofline: float
    tier_b: float | None
    """The same prediction without a benchmark of the changed kernels."""
    tier_a: float | None
    """From ceilings and the model alone."""
    disturbed_rounds: int
    pairs: int

    @property
    def inside(self) -> bool:
        return self.low <= self.measured <= self.high

    @property
    def half_width(self) -> float:
        """Of the interval, relative to its point."""
        return (self.high - self.low) / 2 / self.predicted

    def error(self, forecast: float) -> float:
        """Relative to what was measured."""
        return forecast / self.measured - 1


@dataclass(frozen=True, slots=True)
class Score:
    """Of one way to predict, over all cases that it has a forecast for."""

    cases: int
    median_error: float
    worst_error: float


def score(cases: Sequence[PredictedCase], of: Callable[[PredictedCase], float | None]) -> Score:
    """Absolute errors of one forecast.

    Raises:
        ValueError: no case has it.
    """
    errors = [abs(one.error(value)) for one in cases if (value := of(one)) is not None]
    if not errors:
        raise ValueError("no case has this forecast")
    return Score(cases=len(errors), median_error=median(errors), worst_error=max(errors))


def cover(cases: Sequence[PredictedCase]) -> float:
    """Share of the cases whose measured ratio lies in the interval."""
    return sum(one.inside for one in cases) / len(cases)


def median_half_width(cases: Sequence[PredictedCase]) -> float:
    return median(one.half_width for one in cases)
