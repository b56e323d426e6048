"""The part of the log-log plane that a roofline shows, in characters or in ink."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llmprof.schema.datasheet import Datasheet
from llmprof.schema.report import Roof, RooflinePoint


@dataclass(frozen=True, slots=True)
class LogWindow:
    """Intensity to the right, FLOP/s up; both logarithmic."""

    low_intensity: float
    high_intensity: float
    low_flops_per_s: float
    high_flops_per_s: float

    @property
    def decades_across(self) -> float:
        return math.log10(self.high_intensity / self.low_intensity)

    @property
    def decades_up(self) -> float:
        return math.log10(self.high_flops_per_s / self.low_flops_per_s)

    def across(self, intensity: float) -> float:
        """0 at the left edge, 1 at the right one."""
        return math.log10(intensity / self.low_intensity) / self.decades_across

    def up(self, flops_per_s: float) -> float:
        """0 at the bottom edge, 1 at the top one."""
        return math.log10(flops_per_s / self.low_flops_per_s) / self.decades_up

    def intensity_at(self, across: float) -> float:
        return float(self.low_intensity * 10 ** (across * self.decades_across))


def window_around(
    roof: Roof | None, points: Sequence[RooflinePoint], datasheet: Datasheet | None = None
) -> LogWindow:
    """Every point with its bar and its cap, the ridge and the flat roof, with room on each side.

    Points that achieved nothing have no place on a logarithmic axis: leave them out before.
    """
    intensities = [p.intensity_flops_per_byte for p in points]
    intensities += [p.intensity_low_flops_per_byte for p in points]
    rates = [p.achieved_flops_per_s.point for p in points]
    rates += [p.attainable_flops_per_s for p in points]
    if roof:
        intensities += [roof.ridge_flops_per_byte / 4, roof.ridge_flops_per_byte * 4]
        rates += [roof.matmul_flops_per_s.high, roof.matmul_flops_per_s.low / 30]
        peak = datasheet.flops_per_s.get(roof.matmul_dtype) if datasheet else None
        rates += [peak] if peak else []
    return LogWindow(
        low_intensity=min(intensities, default=0.1) / 2,
        high_intensity=max(intensities, default=100.0) * 2,
        low_flops_per_s=min(rates, default=1e9) / 2.5,
        high_flops_per_s=max(rates, default=1e12) * 1.8,
    )


def placeable(points: Sequence[RooflinePoint]) -> list[RooflinePoint]:
    """Points with a place on logarithmic axes."""
    return [point for point in points if point.achieved_flops_per_s.point > 0]
