"""The ledger of each phase as a stacked bar, with what is hidden behind it hatched below."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

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
from llmprof.renderers.marks import layer_gid, tag
from llmprof.renderers.wording import hidden_key, one_line, part_key
from llmprof.schema.ledger import HiddenTerm, Ledger, Part, PartTime
from llmprof.schema.report import Report

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH_IN = 7.2
_PHASE_IN, _REST_IN = 0.85, 0.95
_LEFT, _RIGHT = 0.115, 0.965
_CHARACTER_IN = 0.068
"""Width of a letter at the size of the labels: a label is left out where it would not fit."""
_BAR, _HIDDEN = 0.5, 0.16
"""Heights in units of one phase."""


def ledger_figure(report: Report, kind: str) -> bytes:
    """Bytes of an `svg`, `pdf` or `png`; equal for equal reports. Each bar is one step's time."""
    with styled():
        from matplotlib.figure import Figure

        height_in = _REST_IN + _PHASE_IN * max(len(report.ledgers), 1)
        figure = Figure(figsize=(_WIDTH_IN, height_in))
        axes = figure.add_axes((_LEFT, 0.72 / height_in, _RIGHT - _LEFT, 1 - _REST_IN / height_in))
        _prepare(axes, report.ledgers)
        for row, ledger in enumerate(report.ledgers):
            _draw_parts(axes, ledger, row)
            _draw_hidden(axes, ledger, row)
        draw_legend(figure, {part.part for one in report.ledgers for part in one.parts})
        return figure_bytes(figure, kind)


def _prepare(axes: "Axes", ledgers: Sequence[Ledger]) -> None:
    axes.set_ylim(max(len(ledgers), 1) - 0.42, -0.42)
    left = min([0.0, *(_negative(ledger) for ledger in ledgers)])
    right = max([1.0, *(1.0 - _negative(ledger) for ledger in ledgers)])
    axes.set_xlim(left, right)
    axes.set_yticks(range(len(ledgers)), [_row_label(ledger) for ledger in ledgers], size=8)
    axes.xaxis.set_major_formatter(lambda value, _: units.percent(value))
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.tick_params(axis="x", labelsize=7.5, length=3)
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")
    axes.set_axisbelow(True)
    if not ledgers:
        message = "no ledger: the run has no grouped pass, or no ceilings"
        axes.text(0.5, 0.5, message, transform=axes.transAxes, ha="center", color=MUTED)


def _negative(ledger: Ledger) -> float:
    """Sum of the shares below zero: they are drawn to the left of the axis."""
    return sum(part.share for part in ledger.parts if part.share < 0)


def _row_label(ledger: Ledger) -> str:
    return f"{ledger.phase.value}\n{units.seconds(ledger.step_s.point)}"


def _draw_parts(axes: "Axes", ledger: Ledger, row: int) -> None:
    start, below = 0.0, 0.0
    for part in ledger.parts:
        if part.share < 0:
            below += part.share
        drawn = _draw_part(axes, part, below if part.share < 0 else start, row)
        drawn[0].set_gid(layer_gid(part.part.label, part_key(ledger, part)))
        tag(drawn[1:], part.part.label, f"on-{part_key(ledger, part)}")
        start += max(part.share, 0.0)


def _draw_part(axes: "Axes", part: PartTime, start: float, row: int) -> "list[Artist]":
    """The bar, then what lies on it."""
    drawn: list[Artist] = [
        *axes.barh(
            row,
            abs(part.share),
            left=start,
            height=_BAR,
            color=PART_COLORS[part.part],
            edgecolor=SURFACE,
            linewidth=0.8,
        )
    ]
    if part.part in PART_HATCHES:
        drawn += axes.barh(
            row,
            abs(part.share),
            left=start,
            height=_BAR,
            color="none",
            edgecolor=ON_PART,
            alpha=0.3,
            hatch=PART_HATCHES[part.part],
            linewidth=0,
        )
    low, high = axes.get_xlim()
    room_in = abs(part.share) / (high - low) * _WIDTH_IN * (_RIGHT - _LEFT)
    name, time = part.part.label, units.seconds(part.time_s.point)
    if room_in > _CHARACTER_IN * max(len(name), len(time)) + 0.08:
        label = axes.text(
            start + abs(part.share) / 2,
            row,
            f"{name}\n{time}",
            ha="center",
            va="center",
            size=7.5,
            color=ON_PART,
            linespacing=1.05,
            bbox={"facecolor": PART_COLORS[part.part], "edgecolor": "none", "pad": 1.0},
        )
        drawn.append(label)
    return drawn


def _draw_hidden(axes: "Axes", ledger: Ledger, row: int) -> None:
    """Terms that cost nothing now, end to end below the bar that hides them."""
    start = 0.0
    shown = [term for term in ledger.hidden if term.time_s > 0]
    for term in shown:
        share = term.time_s / ledger.step_s.point
        axes.barh(
            row + _BAR / 2 + _HIDDEN / 2 + 0.03,
            share,
            left=start,
            height=_HIDDEN,
            color="none",
            edgecolor=MUTED,
            hatch="/////",
            linewidth=0.7,
            gid=layer_gid("hidden", hidden_key(ledger, term)),
        )
        start += share
    if shown:
        label = axes.text(
            start + 0.008,
            row + _BAR / 2 + _HIDDEN / 2 + 0.03,
            "hidden: " + ", ".join(map(_hidden_label, shown)),
            va="center",
            size=6.8,
            color=MUTED,
        )
        label.set_gid(layer_gid("hidden", f"hidden-label-{ledger.phase.value}"))


def _hidden_label(term: HiddenTerm) -> str:
    return f"{one_line(term.name)} {units.seconds(term.time_s)} under {one_line(term.under)}"


def draw_legend(figure: "Figure", drawn: Collection[Part]) -> None:
    """Colour, hatch and name of every part that was drawn, in the order of the ledger."""
    from matplotlib.patches import Patch

    present = [part for part in Part if part in drawn]
    handles = [
        Patch(
            facecolor=PART_COLORS[part],
            edgecolor=ON_PART,
            hatch=PART_HATCHES.get(part, ""),
            linewidth=0.0,
            label=part.label,
        )
        for part in present
    ]
    if handles:
        figure.legend(
            handles=handles,
            loc="lower center",
            ncols=min(len(handles), 7),
            frameon=False,
            fontsize=7.5,
            handlelength=1.4,
            columnspacing=1.4,
        )
