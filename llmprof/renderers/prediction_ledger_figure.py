"""The ledger before and after a switch: two stacked bars per phase, on one scale of time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from llmprof import units
from llmprof.renderers.figure_style import (
    INK,
    MUTED,
    ON_PART,
    PART_COLORS,
    PART_HATCHES,
    SURFACE,
    figure_bytes,
    styled,
)
from llmprof.renderers.ledger_figure import draw_legend
from llmprof.renderers.marks import layer_gid
from llmprof.renderers.prediction_tables import predicted_part_key
from llmprof.schema.ledger import Part
from llmprof.schema.prediction import PartPrediction, PhasePrediction, Prediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH_IN: Final = 7.2
_BAR_IN, _BETWEEN_IN, _LEGEND_IN = 0.42, 0.55, 0.4
_LEFT, _RIGHT = 0.16, 0.965
_BAR: Final = 0.62
_BELOW: Final = 0.12
"""Of the interval: on the bar its ink would be lost in a dark page."""
_CHARACTER_IN: Final = 0.068
HOW_TO_READ: Final = (
    "Where the time of one step goes before and after, both on one scale. The line below the "
    "predicted bar is the interval of the step. What would lie below zero is drawn there."
)


def prediction_ledger_figure(prediction: Prediction, kind: str) -> bytes:
    """Bytes of an `svg`, `pdf` or `png`; equal for equal predictions."""
    phases = prediction.phases
    heights = [_BAR_IN * len(_bars(phase)) for phase in phases] or [_BAR_IN]
    height_in = sum(heights) + _BETWEEN_IN * len(heights) + _LEGEND_IN
    with styled():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(_WIDTH_IN, height_in))
        top_in = height_in
        for phase, high_in in zip(phases, heights, strict=False):
            top_in -= high_in + 0.05
            box = (_LEFT, top_in / height_in, _RIGHT - _LEFT, high_in / height_in)
            _draw_phase(figure.add_axes(box), phase)
            top_in -= _BETWEEN_IN - 0.05
        if not phases:
            figure.text(0.5, 0.5, "nothing is predicted", ha="center", color=MUTED)
        draw_legend(figure, {one.part for phase in phases for one in phase.parts})
        return figure_bytes(figure, kind)


def _bars(phase: PhasePrediction) -> list[tuple[str, list[tuple[PartPrediction, float]]]]:
    """Label and parts with their times; without a base there is only one bar."""
    after = [(one, one.predicted_s) for one in phase.parts]
    before = [(one, one.base_s) for one in phase.parts if one.base_s is not None]
    bars = [("predicted", after)]
    return [("before", before), *bars] if phase.base_step_s is not None else bars


def _draw_phase(axes: "Axes", phase: PhasePrediction) -> None:
    bars = _bars(phase)
    ends = [sum(time_s for _, time_s in parts if time_s > 0) for _, parts in bars]
    starts = [sum(time_s for _, time_s in parts if time_s < 0) for _, parts in bars]
    axes.set_xlim(min(0.0, *starts, 0.0), 1.03 * max(*ends, phase.step_s.high, 1e-12))
    axes.set_ylim(len(bars) - 0.5, -0.5)
    for row, (label, parts) in enumerate(bars):
        _draw_bar(axes, phase, parts, row, marked=label == "predicted")
    _draw_interval(axes, phase, len(bars) - 1)
    before = phase.base_step_s
    times = [units.seconds(phase.step_s.point)]
    times = [units.seconds(before.point), *times] if before is not None else times
    labels = [f"{label}\n{time}" for (label, _), time in zip(bars, times, strict=True)]
    axes.set_yticks(range(len(bars)), labels, size=7.5)
    axes.set_ylabel(phase.phase.value, size=8.5, color=INK, weight="bold")
    axes.xaxis.set_major_formatter(lambda value, _: units.seconds(value))
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.tick_params(axis="x", labelsize=7.5, length=3)
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")
    axes.set_axisbelow(True)


def _draw_bar(
    axes: "Axes",
    phase: PhasePrediction,
    parts: Sequence[tuple[PartPrediction, float]],
    row: int,
    *,
    marked: bool,
) -> None:
    start, below = 0.0, 0.0
    for one, time_s in parts:
        if time_s < 0:
            below += time_s
        left = below if time_s < 0 else start
        (bar,) = axes.barh(
            row,
            abs(time_s),
            left=left,
            height=_BAR,
            color=PART_COLORS[one.part],
            edgecolor=SURFACE,
            linewidth=0.8,
        )
        if marked:
            bar.set_gid(layer_gid(one.part.label, predicted_part_key(phase, one)))
        _hatch(axes, one.part, left, abs(time_s), row)
        _name(axes, one.part, left, abs(time_s), row)
        start += max(time_s, 0.0)


def _hatch(axes: "Axes", part: Part, left: float, width: float, row: int) -> None:
    if part in PART_HATCHES:
        axes.barh(
            row,
            width,
            left=left,
            height=_BAR,
            color="none",
            edgecolor=ON_PART,
            alpha=0.3,
            hatch=PART_HATCHES[part],
            linewidth=0,
        )


def _name(axes: "Axes", part: Part, left: float, width: float, row: int) -> None:
    """Left out where it would not fit: the legend and the table have it."""
    low, high = axes.get_xlim()
    room_in = width / (high - low) * _WIDTH_IN * (_RIGHT - _LEFT)
    if room_in > _CHARACTER_IN * len(part.label) + 0.08:
        axes.text(
            left + width / 2,
            row,
            part.label,
            ha="center",
            va="center",
            size=7.5,
            color=ON_PART,
            bbox={"facecolor": PART_COLORS[part], "edgecolor": "none", "pad": 1.0},
        )


def _draw_interval(axes: "Axes", phase: PhasePrediction, row: int) -> None:
    step = phase.step_s
    axes.errorbar(
        [step.point],
        [row + _BAR / 2 + _BELOW],
        xerr=[[max(step.point - step.low, 0.0)], [max(step.high - step.point, 0.0)]],
        color=INK,
        linewidth=1.2,
        marker="|",
        markersize=4,
        capsize=2,
        zorder=5,
    )
