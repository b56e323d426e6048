"""One response, token by token: why it starts with a wait, and how it goes on."""

from typing import TYPE_CHECKING

from llmprof import units
from llmprof.renderers.figure_style import (
    MUTED,
    PHASE_COLORS,
    PHASE_MARKERS,
    figure_bytes,
    styled,
)
from llmprof.schema.cost import Phase
from llmprof.schema.timeline import Timeline, TokenGap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE_IN = (7.2, 2.9)


def response_figure(timeline: Timeline, kind: str) -> bytes:
    """Bytes of an `svg`, `pdf` or `png`: left when each token is there, right how long it took.

    Both start at zero: a decode that is even must look even.
    """
    with styled():
        from matplotlib.figure import Figure

        figure = Figure(figsize=_SIZE_IN)
        left, right = figure.subplots(1, 2)
        figure.subplots_adjust(left=0.105, right=0.985, bottom=0.17, top=0.89, wspace=0.28)
        _draw_arrivals(left, timeline.response)
        _draw_gaps(right, _followers(timeline))
        for axes in (left, right):
            axes.yaxis.set_major_formatter(lambda value, _: units.seconds(value))
            axes.set_xlabel("output token", size=8)
            axes.tick_params(labelsize=7.5, length=3)
            axes.grid(True, axis="y")
            axes.set_ylim(bottom=0)
        return figure_bytes(figure, kind)


def starts_with_a_wait(timeline: Timeline) -> bool:
    """Whether token 1 waited for a prefill."""
    return any(steps.phase is Phase.PREFILL for steps in timeline.steps)


def _followers(timeline: Timeline) -> tuple[TokenGap, ...]:
    """The tokens that came after another one."""
    return timeline.response[1:] if starts_with_a_wait(timeline) else timeline.response


def _draw_arrivals(axes: "Axes", gaps: tuple[TokenGap, ...]) -> None:
    positions, ends, now_s = [0], [0.0], 0.0
    for gap in gaps:
        now_s += gap.gap_s.point * (gap.last - gap.first + 1)
        positions.append(gap.last)
        ends.append(now_s)
    axes.plot(positions, ends, color=PHASE_COLORS[Phase.DECODE], linewidth=1.3)
    if gaps:
        first = gaps[0].gap_s.point
        axes.plot([0, 1], [0.0, first], color=PHASE_COLORS[Phase.PREFILL], linewidth=2.2)
        axes.plot(
            [1],
            [first],
            color=PHASE_COLORS[Phase.PREFILL],
            marker=PHASE_MARKERS[Phase.PREFILL],
            markersize=5,
        )
        axes.annotate(
            f"token 1 after {units.seconds(first)}",
            (1, first),
            xytext=(8, -3),
            textcoords="offset points",
            size=7.5,
            va="top",
        )
    axes.set_title("when the token is there, from the start", size=8.5, loc="left")


def _draw_gaps(axes: "Axes", gaps: tuple[TokenGap, ...]) -> None:
    axes.set_title("time since the token before (ITL)", size=8.5, loc="left")
    if not gaps:
        axes.text(
            0.5, 0.5, "one output token only", transform=axes.transAxes, ha="center", color=MUTED
        )
        return
    positions = [(gap.first + gap.last) / 2 for gap in gaps]
    color = PHASE_COLORS[Phase.DECODE]
    axes.fill_between(
        positions,
        [gap.gap_s.low for gap in gaps],
        [gap.gap_s.high for gap in gaps],
        color=color,
        alpha=0.18,
        linewidth=0,
    )
    few = len(gaps) <= 64
    axes.plot(
        positions,
        [gap.gap_s.point for gap in gaps],
        color=color,
        linewidth=1.0,
        marker=PHASE_MARKERS[Phase.DECODE] if few else None,
        markersize=2.6,
    )
