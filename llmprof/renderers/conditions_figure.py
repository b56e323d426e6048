"""Clock, power and activity over the rounds: each panel from zero, so that a calm machine looks calm."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from llmprof.renderers.conditions import Condition, Panel
from llmprof.renderers.figure_style import MUTED, figure_bytes, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_POINTS: Final = 500
"""A longer series is thinned: every n-th round is drawn."""
_WIDTH_IN, _HEIGHT_IN = 7.2, 2.5
_TITLES: Final[dict[Panel, str]] = {
    "clock": "clock",
    "power": "power",
    "activity": "activity of the device",
    "share": "share of the round",
}
_LINES: Final = (("#3a6ea5", "^"), ("#2f8f6f", "v"), ("#8c8c8c", "<"))
"""Colour and shape of the first, second and third quantity of a panel; none has more."""


def drawn_panels(found: Sequence[Condition]) -> dict[Panel, list[Condition]]:
    """The quantities that were read, by panel; empty where there is nothing to draw."""
    panels = {
        panel: [one for one in found if one.panel == panel and one.values] for panel in _TITLES
    }
    return {panel: shown for panel, shown in panels.items() if shown}


def conditions_figure(found: Sequence[Condition], kind: str) -> bytes:
    """Bytes of an `svg`, `pdf` or `png` of at least one quantity that was read."""
    panels = drawn_panels(found)
    with styled():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN))
        row = figure.subplots(1, len(panels), squeeze=False)[0]
        figure.subplots_adjust(left=0.1, right=0.985, bottom=0.19, top=0.9, wspace=0.3)
        for axes, (panel, shown) in zip(row, panels.items(), strict=True):
            _draw(axes, shown, _TITLES[panel])
        return figure_bytes(figure, kind)


def _draw(axes: "Axes", shown: Sequence[Condition], title: str) -> None:
    from matplotlib.ticker import MaxNLocator

    for one, (color, marker) in zip(shown, _LINES[: len(shown)], strict=True):
        every = -(-len(one.values) // MAX_POINTS)
        axes.plot(
            one.times_s[::every],
            one.values[::every],
            color=color,
            marker=marker,
            markersize=4,
            linewidth=1.0,
            label=one.name,
        )
    highest = max(max(one.values) for one in shown)
    axes.set_ylim(0, (1.2 + 0.13 * len(shown)) * (highest or 1.0))  # above the curves: the legend
    axes.set_title(title, size=8.5, loc="left")
    axes.set_xlabel("seconds since the start of the run", size=8, color=MUTED)
    axes.yaxis.set_major_formatter(lambda value, _: shown[0].text(value))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.tick_params(labelsize=7.5, length=3)
    axes.grid(True, axis="y")
    axes.legend(fontsize=7, frameon=False, loc="upper left", handlelength=1.6)
