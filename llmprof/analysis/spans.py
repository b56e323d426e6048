"""Seconds with what bounds them, and how they add."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from llmprof.schema.prediction import Interval


@dataclass(frozen=True, slots=True)
class Span:
    """A forecast and how far it may be off on either side."""

    point: float
    low: float
    high: float

    @classmethod
    def around(cls, point: float, *others: float) -> "Span":
        """Wide enough for every other value that the same thing could have."""
        return cls(point, min(point, *others), max(point, *others))

    @classmethod
    def exactly(cls, point: float) -> "Span":
        return cls(point, point, point)

    def widened(self, relative: float) -> "Span":
        """By a further independent error of this size: as many times less as more."""
        less = self.point * relative / (1 + relative)
        below = math.hypot(self.point - self.low, less)
        return Span(
            self.point,
            max(self.point - below, self.low / (1 + relative)),
            self.point + math.hypot(self.high - self.point, self.point * relative),
        )

    def moved(self, to: "Span") -> "Span":
        """To where `to` is, with the bounds of both errors, which add up."""
        return Span(to.point, to.low - (self.point - self.low), to.high + (self.high - self.point))

    def beyond(self, other: "Span") -> "Span":
        """What this forecast changes of `other`: bounds are those of one and the same error."""
        return Span(self.point - other.point, self.low - other.low, self.high - other.high)

    def interval(self) -> Interval:
        return Interval(point=self.point, low=self.low, high=self.high)


def added(spans: Iterable[Span]) -> Span:
    """The sum: errors of different kernels are independent, so their squares add."""
    parts = list(spans)
    point = sum(one.point for one in parts)
    below = math.sqrt(sum((one.point - one.low) ** 2 for one in parts))
    above = math.sqrt(sum((one.high - one.point) ** 2 for one in parts))
    return Span(point, point - below, point + above)


def together(spans: Iterable[Span]) -> Span:
    """The sum where one unknown is behind all errors: they add up as they are."""
    parts = list(spans)
    return Span(
        sum(one.point for one in parts),
        sum(one.low for one in parts),
        sum(one.high for one in parts),
    )


def ratio_of(above: float, below: Span) -> Interval:
    """A known number over a forecast, which is positive."""
    floor = max(below.low, below.point * 1e-3)
    return Interval(point=above / below.point, low=above / below.high, high=above / floor)
