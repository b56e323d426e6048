"""The requests of one round over time: queue, time to the first token, the tokens after it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from llmprof import units
from llmprof.renderers.figure_style import (
    MUTED,
    PHASE_COLORS,
    SURFACE,
    figure_bytes,
    styled,
)
from llmprof.renderers.marks import layer_gid
from llmprof.schema.cost import Phase
from llmprof.schema.timeline import ServedRequest, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_SHOWN: Final = 64
"""Rows; the others are in the run file, and their spread in the table."""
_ROW_IN, _REST_IN, _WIDTH_IN = 0.115, 0.85, 7.2
_QUEUE: Final[dict[str, Any]] = {
    "color": "none",
    "edgecolor": MUTED,
    "hatch": "/////",
    "linewidth": 0.6,
}


def requests_figure(timeline: Timeline, kind: str) -> bytes:
    """Bytes of an `svg`, `pdf` or `png`: one row per request, in the order of the trace."""
    with styled():
        from matplotlib.figure import Figure

        shown = timeline.requests[:MOST_SHOWN]
        height_in = _REST_IN + _ROW_IN * max(len(shown), 4)
        figure = Figure(figsize=(_WIDTH_IN, height_in))
        axes = figure.add_axes((0.07, 0.42 / height_in, 0.915, 1 - _REST_IN / height_in))
        for row, request in enumerate(shown):
            _draw(axes, request, row)
        _prepare(axes, shown)
        return figure_bytes(figure, kind)


def request_words(request: ServedRequest) -> str:
    """What a mark says when it is pointed at."""
    named = f"request {request.index}, {request.prompt_tokens:,} prompt tokens"
    if request.ttft_s is None or request.queue_s is None or request.end_to_end_s is None:
        return f"{named}: {request.outcome}"
    words = f"{named}: queue {units.seconds(request.queue_s)}, TTFT {units.seconds(request.ttft_s)}"
    if request.tpot_s is not None:
        words += f", TPOT {units.seconds(request.tpot_s)}"
    return (
        f"{words}, {request.output_tokens:,} output tokens in {units.seconds(request.end_to_end_s)}"
    )


def request_key(request: ServedRequest) -> str:
    return f"request-{request.index}"


def _draw(axes: "Axes", request: ServedRequest, row: int) -> None:
    if (
        request.arrival_s is None
        or request.queue_s is None
        or request.ttft_s is None
        or request.end_to_end_s is None
    ):
        axes.text(0, row, f" {request.outcome}", va="center", size=6.5, color=MUTED)
        return
    started = request.arrival_s + request.queue_s
    first = request.arrival_s + request.ttft_s
    end = request.arrival_s + request.end_to_end_s
    axes.barh(row, request.queue_s, left=request.arrival_s, height=0.62, **_QUEUE)
    axes.barh(
        row,
        first - started,
        left=started,
        height=0.62,
        color=PHASE_COLORS[Phase.PREFILL],
    )
    (decode,) = axes.barh(
        row, end - first, left=first, height=0.62, color=PHASE_COLORS[Phase.DECODE]
    )
    decode.set_gid(layer_gid("", request_key(request)))
    if request.preemptions:
        axes.plot([end], [row], marker="x", color=MUTED, markersize=4)


def _prepare(axes: "Axes", shown: Sequence[ServedRequest]) -> None:
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    axes.set_ylim(max(len(shown), 4) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_locator(MaxNLocator(min(len(shown), 10) or 1, integer=True))
    axes.tick_params(labelsize=7.5, length=3)
    axes.set_ylabel("request", size=8)
    axes.set_xlabel("seconds since the start of the round", size=8)
    axes.grid(True, axis="x")
    axes.set_axisbelow(True)
    axes.legend(
        handles=[
            Patch(facecolor=SURFACE, edgecolor=MUTED, hatch="/////", linewidth=0.6, label="queue"),
            Patch(facecolor=PHASE_COLORS[Phase.PREFILL], label="to the first token"),
            Patch(facecolor=PHASE_COLORS[Phase.DECODE], label="the tokens after it"),
        ],
        fontsize=7.5,
        frameon=False,
        ncols=3,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        borderaxespad=0.2,
    )
