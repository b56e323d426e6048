"""An estimate in words: its point, its interval, and how far the interval is to be trusted."""

from collections.abc import Callable, Iterable

from llmprof import units
from llmprof.schema.measurement import Estimate

Formatter = Callable[[float], str]
"""One of the functions of `units`: a number in base units -> number, space, unit."""


def interval(estimate: Estimate, text: Formatter) -> str:
    """The interval alone: "[12.9, 13.6] ms"."""
    if estimate.num_samples == 1:
        return "(one sample)"
    low_number, _, low_unit = text(estimate.low).partition(" ")
    high_number, _, high_unit = text(estimate.high).partition(" ")
    if low_unit == high_unit:
        return f"[{low_number}, {high_number}] {high_unit}".rstrip()
    return f"[{low_number} {low_unit}, {high_number} {high_unit}]"


def point_and_interval(estimate: Estimate, text: Formatter) -> str:
    """Both, as in "13.2 ms [12.9, 13.6]": the interval's unit is the point's unless it says one."""
    point = text(estimate.point)
    unit = point.partition(" ")[2]
    return f"{point} {interval(estimate, text).removesuffix(f' {unit}')}"


def confidence(estimate: Estimate) -> str:
    """What the interval rests on: "95 % of 8" is 95 % confidence from 8 samples."""
    if estimate.num_samples == 1:
        return "one sample"
    return f"{units.percent(estimate.confidence)} of {estimate.num_samples}"


def shared_confidence(estimates: Iterable[Estimate]) -> str:
    """One statement for many intervals, by the weakest of them: "88 % intervals"."""
    weakest = min(estimates, key=lambda estimate: estimate.confidence, default=None)
    if weakest is None or weakest.num_samples == 1:
        return "no intervals"
    return f"{units.percent(weakest.confidence)} intervals"
