"""The roofline as a figure: ceilings as measured, phases by shape and colour, fit for a paper.

Roofline after Williams, Waterman and Patterson (CACM 52(4), 2009). A point's bar runs from the
intensity with every activation in memory to the one with none; the cap above it is what its ops
could attain, each on its own roof with its fixed cost, which is lower than the envelope.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmprof import units
from llmprof.renderers.datasheet_lines import draw_datasheet
from llmprof.renderers.figure_style import (
    BAND,
    INK,
    MUTED,
    PHASE_COLORS,
    PHASE_MARKERS,
    SURFACE,
    figure_bytes,
    styled,
)
from llmprof.renderers.log_window import LogWindow, placeable, window_around
from llmprof.renderers.marks import layer_gid, tag
from llmprof.renderers.wording import is_whole_phase, model_name, one_line, point_key
from llmprof.schema.report import Report, Roof, RooflinePoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PLOT_IN = (6.15, 3.65)
_LEFT_IN, _RIGHT_IN, _TOP_IN, _BOTTOM_IN, _PROVENANCE_IN = 0.9, 0.15, 0.08, 0.45, 0.35
"""Fixed, so that the slope of the roof is known and its label can run along it."""
_RIGHT_EDGE = 0.6
"""From here on a label has no room beside its point."""
_LABEL_STEP = 0.052
"""Least distance of two labels, as a share of the height of the axes."""
_BACKED = {"facecolor": SURFACE, "edgecolor": "none", "alpha": 0.75, "pad": 1.0}
"""Behind a label: a line that crosses it is not mistaken for a letter's."""

HOW_TO_READ = (
    "Bar to the left of a point: what ops hand on in memory instead of in cache. "
    "Cap above it: what its ops could attain, each on its own roof."
)


def roofline_figure(report: Report, kind: str, *, provenance: bool = True) -> bytes:
    """Bytes of an `svg`, `pdf` or `png`; equal for equal reports.

    `provenance` writes below the axes what ran on what and how to read the marks, for a figure that
    will stand alone.
    """
    with styled():
        figure, axes = empty_plot(_PROVENANCE_IN if provenance else 0.0)
        points = placeable(report.points)
        window = window_around(report.roof, points, report.datasheet)
        prepare_axes(axes, window)
        if report.roof:
            draw_roof(axes, report.roof, window)
            _draw_other_dtypes(axes, report, report.roof, points, window)
            draw_datasheet(axes, report, window)
        for point in points:
            draw_point(axes, point)
        _draw_labels(axes, points, window)
        _say_what_is_missing(axes, report, points)
        if provenance:
            figure.text(0.01, 0.012, _provenance(report), color=MUTED, size=6.5)
        return figure_bytes(figure, kind)


def empty_plot(below_in: float = 0.0) -> "tuple[Figure, Axes]":
    """Axes of the size that labels along the roof need, with `below_in` inches under them."""
    from matplotlib.figure import Figure

    bottom_in = _BOTTOM_IN + below_in
    wide_in = _LEFT_IN + _PLOT_IN[0] + _RIGHT_IN
    high_in = bottom_in + _PLOT_IN[1] + _TOP_IN
    figure = Figure(figsize=(wide_in, high_in))
    axes = figure.add_axes(
        (
            _LEFT_IN / wide_in,
            bottom_in / high_in,
            _PLOT_IN[0] / wide_in,
            _PLOT_IN[1] / high_in,
        )
    )
    return figure, axes


def _slope_degrees(window: LogWindow) -> float:
    """How steep a line of constant bandwidth looks: one decade up for one to the right."""
    wide_in, high_in = _PLOT_IN
    return math.degrees(math.atan2(high_in / window.decades_up, wide_in / window.decades_across))


def prepare_axes(axes: "Axes", window: LogWindow) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(window.low_intensity, window.high_intensity)
    axes.set_ylim(window.low_flops_per_s, window.high_flops_per_s)
    axes.xaxis.set_major_formatter(lambda value, _: units.significant(value, 1))
    axes.yaxis.set_major_formatter(lambda value, _: units.si(value, "FLOP/s", 1))
    axes.tick_params(labelsize=7.5, length=3)
    axes.tick_params(which="minor", labelbottom=False, labelleft=False, length=1.5)
    axes.grid(True, which="major")
    axes.set_axisbelow(True)
    axes.set_xlabel("arithmetic intensity (FLOP/byte)", size=8.5, labelpad=2)


def draw_roof(axes: "Axes", roof: Roof, window: LogWindow) -> None:
    read, matmul = roof.read_bytes_per_s, roof.matmul_flops_per_s
    xs = [window.low_intensity, roof.ridge_flops_per_byte, window.high_intensity]
    grid = [xs[0] * (xs[2] / xs[0]) ** (step / 60) for step in range(61)]
    band = axes.fill_between(
        grid,
        [min(matmul.low, read.low * x) for x in grid],
        [min(matmul.high, read.high * x) for x in grid],
        color=BAND,
        alpha=0.45,
        linewidth=0,
    )
    lines = axes.plot(xs, [min(matmul.point, read.point * x) for x in xs], color=INK, linewidth=1.8)
    tag([band, *lines], "measured ceilings", "ceiling")
    axes.axvline(roof.ridge_flops_per_byte, color=MUTED, linewidth=0.8, linestyle=":")
    ridge = f" ridge {units.significant(roof.ridge_flops_per_byte)} FLOP/byte"
    axes.text(xs[1], window.low_flops_per_s * 1.15, ridge, color=MUTED, size=7.5)
    flat = f"{one_line(roof.matmul_dtype)} matmul {units.flops_per_s(matmul.point)}"
    axes.text(xs[2] / 1.1, matmul.high * 1.1, flat, ha="right", size=8)
    slope = f"read {units.bytes_per_s(read.point)} ({one_line(roof.read_level)})"
    _along_slope(axes, roof, window, read.high, slope, above=True)
    if roof.skinny_bytes_per_s:
        _draw_skinny(axes, roof, roof.skinny_bytes_per_s.point, window)


def _draw_other_dtypes(
    axes: "Axes",
    report: Report,
    roof: Roof,
    points: Sequence[RooflinePoint],
    window: LogWindow,
) -> None:
    """Flat roofs, as cached, of points that compute mostly in another dtype than the live reading's."""
    for dtype in sorted({point.dtype for point in points} - {roof.matmul_dtype}):
        known = [one.flops_per_s for one in report.run.ceilings.compute if one.dtype == dtype]
        if not known:
            continue
        rate, end = max(known), window.high_intensity
        start = min(rate / roof.read_bytes_per_s.point, end)
        line = axes.plot([start, end], [rate] * 2, color=INK, linewidth=1.0, linestyle="--")
        tag(line, "measured ceilings", f"ceiling-{one_line(dtype)}")
        label = f"{one_line(dtype)} matmul {units.flops_per_s(rate)}"
        axes.text(end / 1.1, rate * 1.1, label, ha="right", size=8)


def _draw_skinny(axes: "Axes", roof: Roof, bytes_per_s: float, window: LogWindow) -> None:
    """What this matmul kernel reaches with the few rows of a decode step."""
    ceiling = roof.matmul_flops_per_s.point
    xs = [window.low_intensity, ceiling / bytes_per_s]
    tag(
        axes.plot(xs, [bytes_per_s * x for x in xs], color=MUTED, linewidth=0.9),
        "skinny matmul",
        "skinny",
    )
    rows = f", {roof.skinny_rows} rows" if roof.skinny_rows and roof.skinny_rows > 1 else ""
    label = f"skinny matmul {units.bytes_per_s(bytes_per_s)}{rows}"
    _along_slope(axes, roof, window, bytes_per_s, label, above=False)


def _along_slope(
    axes: "Axes", roof: Roof, window: LogWindow, bytes_per_s: float, label: str, *, above: bool
) -> None:
    """Text that runs along a line of constant bandwidth, well above the points of a decode."""
    enters_at = max(window.low_intensity, window.low_flops_per_s / bytes_per_s)
    middle = enters_at * (roof.ridge_flops_per_byte / enters_at) ** 0.6
    axes.text(
        middle,
        middle * bytes_per_s * (1.06 if above else 0.94),
        label,
        rotation=_slope_degrees(window),
        rotation_mode="anchor",
        ha="center",
        va="bottom" if above else "top",
        size=8 if above else 7,
        color=INK if above else MUTED,
        bbox=_BACKED,
    )


def draw_point(axes: "Axes", point: RooflinePoint) -> None:
    color, rate = PHASE_COLORS[point.phase], point.achieved_flops_per_s
    whole = is_whole_phase(point)
    x = point.intensity_flops_per_byte
    beside = axes.plot(
        [point.intensity_low_flops_per_byte, x], [rate.point] * 2, color=color, linewidth=1.4
    )
    beside += axes.plot([x, x], [rate.low, rate.high], color=color, linewidth=1.4)
    beside += axes.plot(
        [x, x],
        [rate.point, point.attainable_flops_per_s],
        color=color,
        linewidth=0.8,
        linestyle=":",
    )
    cap = [point.attainable_flops_per_s]
    beside += axes.plot([x], cap, color=color, marker="_", markersize=9)
    tag(beside, point.phase.value, f"beside-{point_key(point)}")
    axes.plot(
        [x],
        [rate.point],
        marker=PHASE_MARKERS[point.phase],
        markersize=8 if whole else 5,
        markerfacecolor=color if whole else SURFACE,
        markeredgecolor=color,
        markeredgewidth=1.2,
        linestyle="none",
        gid=layer_gid(point.phase.value, point_key(point)),
        zorder=4 if whole else 3,
    )


def _draw_labels(axes: "Axes", points: Sequence[RooflinePoint], window: LogWindow) -> None:
    """To the right of a point, or below it at the right edge: the roof is never in the way."""
    beside = [p for p in points if window.across(p.intensity_flops_per_byte) < _RIGHT_EDGE]
    below = [p for p in points if p not in beside]
    for right, group in ((True, beside), (False, below)):
        group.sort(key=lambda p: p.achieved_flops_per_s.point, reverse=True)
        heights = [window.up(p.achieved_flops_per_s.point) for p in group]
        heights = heights if right else [height - 0.06 for height in heights]
        for point, height in zip(group, spread(heights, _LABEL_STEP), strict=True):
            across = window.across(point.intensity_flops_per_byte)
            axes.text(
                across + 0.035 if right else 0.99,
                height,
                _label(point),
                transform=axes.transAxes,
                ha="left" if right else "right",
                va="center",
                size=8 if is_whole_phase(point) else 7,
                weight="bold" if is_whole_phase(point) else "normal",
                color=PHASE_COLORS[point.phase],
                gid=layer_gid(point.phase.value, f"label-{point_key(point)}"),
                bbox=_BACKED,
            )


def spread(positions: Sequence[float], step: float) -> list[float]:
    """Descending positions, moved down as little as needed until each is `step` below the last."""
    moved: list[float] = []
    for position in positions:
        moved.append(min(position, moved[-1] - step) if moved else position)
    return moved


def _label(point: RooflinePoint) -> str:
    intensity = units.significant(point.intensity_flops_per_byte)
    fraction = units.percent(point.roof_fraction.point)
    return f"{one_line(point.label)}  {intensity} FLOP/byte, {fraction} of its roof"


def _say_what_is_missing(axes: "Axes", report: Report, points: Sequence[RooflinePoint]) -> None:
    missing = []
    if report.roof is None:
        missing.append("no ceilings were read: nothing is judged")
    if not points:
        missing.append("no phase could be placed")
    text = "\n".join(missing)
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", size=10, color=MUTED)


def _provenance(report: Report) -> str:
    environment = report.run.environment
    return (
        f"{model_name(report)}, {one_line(environment.device_name)}, "
        f"{units.number_of(report.run.engine.threads, 'thread')}. Ceilings: medians of the live readings, with their "
        f"interval as a band.\n{HOW_TO_READ}"
    )
