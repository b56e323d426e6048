"""The KV cache over one round: what sequences reserve, what of it holds tokens."""

import math
from typing import Literal

from llmprof import units
from llmprof.renderers.figure_style import INK, MUTED, PART_COLORS, figure_bytes, styled
from llmprof.schema.ledger import Part
from llmprof.schema.timeline import Timeline

_SIZE_IN = (7.2, 2.5)
_MOST_TICKS = 5


def _tick_bytes(most_bytes: int) -> int:
    """A power of two: sizes are read in KiB, MiB and GiB."""
    return 1 << max(math.ceil(math.log2(most_bytes / _MOST_TICKS)), 0)


def over_time(timeline: Timeline) -> bool:
    """Requests of many lengths have no common context: their cache is shown over time."""
    return bool(timeline.requests) or len({one.context_tokens for one in timeline.cache}) < 2


def cache_figure(timeline: Timeline, kind: str) -> bytes:
    """Bytes of an `svg`, `pdf` or `png`: over the context of work of a fixed shape, else over time."""
    with styled():
        from matplotlib.figure import Figure
        from matplotlib.ticker import MultipleLocator

        figure = Figure(figsize=_SIZE_IN)
        axes = figure.add_axes((0.115, 0.19, 0.87, 0.68))
        moments = timeline.cache
        timed = over_time(timeline)
        xs: list[float] = [one.time_s if timed else one.context_tokens for one in moments]
        used = [one.used_bytes for one in moments]
        reserved = [one.reserved_bytes for one in moments]
        how: Literal["post", "mid"] = "post" if timed else "mid"
        axes.fill_between(xs, used, step=how, color=PART_COLORS[Part.MEMORY_KV], linewidth=0)
        axes.step(xs, used, where=how, color=INK, linewidth=1.2, label="holds tokens")
        axes.step(
            xs,
            reserved,
            where=how,
            color=MUTED,
            linewidth=1.2,
            linestyle="--",
            label="reserved",
        )
        axes.set_ylim(0, 1.08 * max(*reserved, *used, 1))
        axes.set_title("KV cache of all sequences, in each step of one round", size=8.5, loc="left")
        axes.set_xlabel(
            "seconds since the start of the round" if timed else "context of a sequence (tokens)",
            size=8,
        )
        axes.yaxis.set_major_formatter(lambda value, _: units.byte_count(value))
        axes.yaxis.set_major_locator(MultipleLocator(_tick_bytes(max(*reserved, *used, 1))))
        axes.tick_params(labelsize=7.5, length=3)
        axes.grid(True, axis="y")
        axes.legend(fontsize=7.5, frameon=False, loc="lower right")
        return figure_bytes(figure, kind)
