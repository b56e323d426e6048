"""The steps of each phase by their length: the share of them that took at most so long."""

from typing import TYPE_CHECKING

from llmprof import units
from llmprof.renderers.figure_style import MUTED, PHASE_COLORS, figure_bytes, styled
from llmprof.schema.timeline import StepTimes, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH_IN, _HEIGHT_IN = 7.2, 2.3


def steps_figure(timeline: Timeline, kind: str) -> bytes:
    """Bytes of an `svg`, `pdf` or `png`; one panel per phase."""
    with styled():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN))
        panels = figure.subplots(1, max(len(timeline.steps), 1), sharey=True, squeeze=False)[0]
        figure.subplots_adjust(left=0.09, right=0.97, bottom=0.21, top=0.86, wspace=0.12)
        for axes, times in zip(panels, timeline.steps, strict=False):
            _draw(axes, times)
        panels[0].set_ylabel("share of the steps", size=8)
        panels[0].yaxis.set_major_formatter(lambda value, _: units.percent(value))
        if not timeline.steps:
            panels[0].text(0.5, 0.5, "no steps", ha="center", color=MUTED)
        return figure_bytes(figure, kind)


def _draw(axes: "Axes", times: StepTimes) -> None:
    from matplotlib.ticker import MaxNLocator

    values, color = times.times_s, PHASE_COLORS[times.phase]
    shares = [(rank + 1) / len(values) for rank in range(len(values))]
    axes.step([values[0], *values], [0.0, *shares], where="post", color=color, linewidth=1.4)
    median = times.at(0.5)
    axes.plot([median, median], [0, 0.5], color=MUTED, linewidth=0.8, linestyle=":")
    axes.text(median, 0.03, f" median {units.seconds(median)}", size=7.5, color=MUTED)
    low, high = values[0], values[-1]
    # Steps that are alike must look alike: one per cent is not stretched over the whole width.
    room = max(high - low, 0.1 * high)
    axes.set_xlim(low - 0.1 * room, low + 1.1 * room)
    axes.set_ylim(0, 1.04)
    axes.set_title(
        f"{times.phase.value}: {units.number_of(times.num_steps, 'step')}", size=8.5, loc="left"
    )
    axes.xaxis.set_major_formatter(lambda value, _: units.seconds(value))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.tick_params(labelsize=7.5, length=3)
    axes.grid(True, axis="both")
