"""How the machine and the steps moved over the rounds, each against its own median."""

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmprof import units
from llmprof.renderers.figure_style import (
    CEILING_COLORS,
    MUTED,
    PHASE_COLORS,
    PHASE_MARKERS,
    figure_bytes,
    styled,
)
from llmprof.renderers.round_series import Series, ceiling_series, step_series
from llmprof.schema.cost import Phase
from llmprof.schema.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_POINTS = 500
"""A longer series is thinned: every n-th point is drawn."""
_SIZE_IN = (7.2, 2.7)
_LEAST_SPAN = 0.1
"""A calm machine must look calm: one per cent of noise is not stretched over the whole height."""


def rounds_figure(report: Report, kind: str) -> bytes:
    """Bytes of an `svg`, `pdf` or `png`: ceilings to the left, steps to the right, one scale."""
    with styled():
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=_SIZE_IN)
        left, right = figure.subplots(1, 2, sharey=True)
        figure.subplots_adjust(left=0.09, right=0.985, bottom=0.17, top=0.9, wspace=0.08)
        _draw(left, ceiling_series(report.run), "ceilings (higher is faster)")
        _draw(right, step_series(report.run), "median step (lower is faster)")
        left.set_ylabel("of its median", size=8)
        low, high = left.get_ylim()
        left.set_ylim(min(low, 1 - _LEAST_SPAN), max(high, 1 + _LEAST_SPAN))
        left.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        return figure_bytes(figure, kind)


def _draw(axes: "Axes", series: Sequence[Series], title: str) -> None:
    for one in series:
        every = -(-len(one.values) // MAX_POINTS)
        median = statistics.median(one.values)
        phase = one.name if one.name in [phase.value for phase in Phase] else None
        axes.plot(
            one.times_s[::every],
            [value / median for value in one.values[::every]],
            color=PHASE_COLORS[Phase(phase)] if phase else CEILING_COLORS[one.name][0],
            marker=PHASE_MARKERS[Phase(phase)] if phase else CEILING_COLORS[one.name][1],
            markersize=4,
            linewidth=1.0,
            label=one.name,
        )
    axes.axhline(1.0, color=MUTED, linewidth=0.7, linestyle=":")
    axes.set_title(title, size=8.5, loc="left")
    axes.set_xlabel("seconds since the start of the run", size=8)
    axes.yaxis.set_major_formatter(lambda value, _: units.percent(value))
    axes.tick_params(labelsize=7.5, length=3)
    axes.grid(True, axis="y")
    if series:
        axes.legend(fontsize=7.5, frameon=False, ncols=3, handlelength=1.6, columnspacing=1.2)
    else:
        axes.text(0.5, 0.5, "none read", transform=axes.transAxes, ha="center", color=MUTED)
