"""Ops without a link of their own: how their time grows with the numbers that they work on.

A run times them at two sizes, in prefill and in decode. Between these two their time is a line: what
starting them costs, and what each further byte does.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from llmprof.analysis.spans import Span
from llmprof.schema.cost import OpGroup, Phase

_MIN_GROWTH = 2.0
"""Sizes closer than this tell nothing about the slope."""


@dataclass(frozen=True, slots=True)
class SizedTime:
    """A group's time in one phase, and the bytes that it works on there."""

    size_bytes: float
    time_s: float


@dataclass(frozen=True, slots=True)
class SmallOps:
    """What the run measured of each group, by phase."""

    by_group: Mapping[OpGroup, Mapping[Phase, SizedTime]]

    def predict(self, group: OpGroup, phase: Phase, size_bytes: float) -> tuple[Span, str]:
        """Time at another size, from the phase's own time and from the other phase's slope."""
        at = self.by_group[group][phase]
        if size_bytes == at.size_bytes:
            return Span.exactly(at.time_s), "as it is: the same work"
        growth = size_bytes / at.size_bytes if at.size_bytes else 1.0
        slope = self._slope(group)
        if slope is None:
            middle = at.time_s * (1 + growth) / 2
            return (
                Span.around(middle, at.time_s, at.time_s * growth),
                "between the same time and as many times as many bytes: measured at one size only",
            )
        line = at.time_s + slope * (size_bytes - at.size_bytes)
        point = max(line, min(at.time_s, at.time_s * growth))
        return (
            Span.around(point, (at.time_s + point) / 2).widened(0.1),
            "on the line through its times in prefill and decode",
        )

    def _slope(self, group: OpGroup) -> float | None:
        """Seconds per byte between the smallest and the largest size that was timed."""
        times = sorted(self.by_group[group].values(), key=lambda one: one.size_bytes)
        first, last = times[0], times[-1]
        if not first.size_bytes or last.size_bytes < _MIN_GROWTH * first.size_bytes:
            return None
        return max(0.0, (last.time_s - first.time_s) / (last.size_bytes - first.size_bytes))
