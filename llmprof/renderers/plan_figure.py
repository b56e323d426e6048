"""The frontier of a plan, and the speed along it."""

from typing import TYPE_CHECKING, Final

from llmprof import units
from llmprof.renderers.figure_style import INK, MUTED, figure_bytes, styled
from llmprof.renderers.plan_tables import drawn_effects
from llmprof.renderers.plan_words import title
from llmprof.schema.plan import Plan, PlanEffect, PlanPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLORS: Final = ("#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#0072b2")
"""Okabe and Ito, and a grey; a line that comes later has another marker and dash."""
_MARKERS: Final = ("o", "D", "s", "^", "v", "P", "X")
_DASHES: Final = ("--", ":", "-.")
_PANEL_IN: Final = (4.4, 3.4)
_LEGEND_ROW_IN: Final = 0.22
_LEGEND_COLUMNS: Final = 4


def plan_figure(plan: Plan, kind: str) -> bytes:
    """Bytes of an `svg`, `pdf` or `png`."""
    drawn = drawn_effects(plan)
    timed = [point for point in plan.by_context if point.decode is not None]
    panels = 2 if timed else 1
    legend_in = _LEGEND_ROW_IN * -(-len(drawn) // _LEGEND_COLUMNS)
    with styled():
        from matplotlib.figure import Figure

        width = _PANEL_IN[0] * max(panels, 1.5)
        figure = Figure(figsize=(width, _PANEL_IN[1] + legend_in + 0.3), layout="constrained")
        axes = [figure.add_subplot(1, panels, place + 1) for place in range(panels)]
        _draw_frontier(axes[0], drawn)
        if timed:
            _draw_speed(axes[1], timed)
        figure.suptitle(title(plan), size=10, x=0.01, ha="left")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            loc="outside lower left",
            ncols=_LEGEND_COLUMNS,
            frameon=False,
            fontsize=8,
        )
        return figure_bytes(figure, kind)


def _draw_frontier(panel: "Axes", drawn: tuple[PlanEffect, ...]) -> None:
    """A context at which nothing fits has no mark: the axis has no zero."""
    for index, effect in enumerate(drawn):
        fitting = [point for point in effect.frontier if point.sequences]
        own = index == 0
        style = (index - 1) % len(_COLORS)
        panel.plot(
            [point.context_tokens for point in fitting],
            [point.sequences for point in fitting],
            color=INK if own else _COLORS[style],
            marker="o" if own else _MARKERS[style],
            linestyle="-" if own else _DASHES[(index - 1) // len(_COLORS) % len(_DASHES)],
            linewidth=2.2 if own else 1.1,
            markersize=4,
            label=effect.label if fitting else f"{effect.label}: none fits",
            zorder=3 if own else 2,
        )
    _label(panel, "sequences that fit")
    panel.set_title("Frontier", size=9, loc="left")
    if not any(point.sequences for effect in drawn for point in effect.frontier):
        panel.text(0.5, 0.5, "nothing fits", ha="center", color=MUTED, transform=panel.transAxes)


def _draw_speed(panel: "Axes", timed: list[PlanPoint]) -> None:
    contexts = [point.context_tokens for point in timed]
    decodes = [point.decode for point in timed if point.decode is not None]
    panel.plot(
        contexts, [one.output_tokens_per_s for one in decodes], color=INK, marker="o", markersize=4
    )
    each = [one.output_tokens_per_s_per_sequence for one in decodes]
    panel.plot(contexts, each, color=_COLORS[-1], marker="D", linestyle="--", markersize=4)
    for name, rate in (("all sequences", decodes[0].output_tokens_per_s), ("each", each[0])):
        panel.annotate(
            name, (contexts[0], rate), (5, 0), textcoords="offset points", size=8, va="center"
        )
    _label(panel, "output tok/s, predicted at the roof")
    panel.set_title("Decode with every seat taken", size=9, loc="left")


def _label(panel: "Axes", y: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xlabel("context, tokens per sequence", size=8)
    panel.set_ylabel(y, size=8)
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: units.count(value)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: units.count(value)))
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.tick_params(labelsize=8)
    panel.grid(visible=True)
