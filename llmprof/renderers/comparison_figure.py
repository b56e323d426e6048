"""Both runs on one roofline: where a phase stood, where it stands, and an arrow between the two."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmprof.renderers.figure_style import MUTED, PHASE_COLORS, SURFACE, figure_bytes, styled
from llmprof.renderers.log_window import placeable, window_around
from llmprof.renderers.roofline_figure import draw_point, draw_roof, empty_plot, prepare_axes
from llmprof.renderers.wording import is_whole_phase, one_line
from llmprof.schema.comparison import Comparison
from llmprof.schema.report import Roof, RooflinePoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BELOW_IN = 0.3
_LABEL_BELOW_PT = -7
"""Clear of the lowest mark."""
_VISIBLE = 0.1
"""Natural logarithms: about the size of a mark."""
HOW_TO_READ = (
    "Hollow: baseline; filled: candidate. Solid: the baseline's ceilings; dashed: the candidate's."
)


def comparison_figure(comparison: Comparison, kind: str, *, explained: bool = True) -> bytes:
    """Bytes of an `svg`, `pdf` or `png`; equal for equal comparisons.

    `explained` writes how to read it below the axes, for a figure that will stand alone.
    """
    before = _whole(comparison.baseline.points)
    after = _whole(comparison.candidate.points)
    with styled():
        figure, axes = empty_plot(_BELOW_IN if explained else 0.0)
        roof = comparison.baseline.roof
        window = window_around(roof, [*before, *after])
        prepare_axes(axes, window)
        if roof:
            draw_roof(axes, roof, window)
        if comparison.candidate.roof:
            ends = window.low_intensity, window.high_intensity
            _draw_other_roof(axes, comparison.candidate.roof, ends)
        for point in after:
            draw_point(axes, point)
        for point in before:
            _draw_before(axes, point)
            moved = [other for other in after if other.label == point.label]
            _draw_label(axes, [point, *moved])
            for other in moved:
                if _has_moved(point, other):
                    _draw_arrow(axes, point, other)
        if not before and not after:
            missing = "no phase could be placed"
            axes.text(0.5, 0.5, missing, transform=axes.transAxes, ha="center", color=MUTED)
        if explained:
            figure.text(0.01, 0.012, HOW_TO_READ, color=MUTED, size=6.5)
        return figure_bytes(figure, kind)


def _whole(points: Sequence[RooflinePoint]) -> list[RooflinePoint]:
    return [point for point in placeable(points) if is_whole_phase(point)]


def _draw_other_roof(axes: "Axes", roof: Roof, ends: tuple[float, float]) -> None:
    xs = [ends[0], roof.ridge_flops_per_byte, ends[1]]
    read, matmul = roof.read_bytes_per_s.point, roof.matmul_flops_per_s.point
    ys = [min(matmul, read * x) for x in xs]
    axes.plot(xs, ys, color=MUTED, linewidth=1.0, linestyle="--")


def _draw_before(axes: "Axes", point: RooflinePoint) -> None:
    color = PHASE_COLORS[point.phase]
    x, y = point.intensity_flops_per_byte, point.achieved_flops_per_s.point
    axes.plot(
        [x], [y], marker="o", markersize=7, markerfacecolor=SURFACE, markeredgecolor=color, zorder=5
    )


def _draw_label(axes: "Axes", marks: Sequence[RooflinePoint]) -> None:
    """Once for all marks of a phase: below the lowest, between the leftmost and the rightmost."""
    intensities = [one.intensity_flops_per_byte for one in marks]
    axes.annotate(
        one_line(marks[0].label),
        (
            math.sqrt(min(intensities) * max(intensities)),
            min(one.achieved_flops_per_s.low for one in marks),
        ),
        textcoords="offset points",
        xytext=(0, _LABEL_BELOW_PT),
        ha="center",
        va="top",
        color=PHASE_COLORS[marks[0].phase],
        size=8,
    )


def _has_moved(before: RooflinePoint, after: RooflinePoint) -> bool:
    """Whether an arrow between the two marks could be seen."""
    across = after.intensity_flops_per_byte / before.intensity_flops_per_byte
    up = after.achieved_flops_per_s.point / before.achieved_flops_per_s.point
    return abs(math.log(across)) + abs(math.log(up)) > _VISIBLE


def _draw_arrow(axes: "Axes", before: RooflinePoint, after: RooflinePoint) -> None:
    axes.annotate(
        "",
        (after.intensity_flops_per_byte, after.achieved_flops_per_s.point),
        (before.intensity_flops_per_byte, before.achieved_flops_per_s.point),
        arrowprops={
            "arrowstyle": "->",
            "color": PHASE_COLORS[before.phase],
            "shrinkA": 4,
            "shrinkB": 4,
        },
        zorder=6,
    )
