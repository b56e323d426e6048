"""Two axes of a sweep as maps: one square per cell, its number in it."""

from typing import TYPE_CHECKING, Final

from llmprof.renderers.figure_style import GRID, INK, MUTED, figure_bytes, styled
from llmprof.renderers.sweep_columns import (
    DECODE_ROOF,
    DECODE_STEP,
    MIXED_STEP,
    OUTPUT_RATE,
    TTFT,
    Quantity,
    present,
)
from llmprof.renderers.sweep_words import axis_name, value_text
from llmprof.schema.sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_SIDE: Final = 16
_QUANTITIES: Final = (OUTPUT_RATE, DECODE_STEP, MIXED_STEP, TTFT, DECODE_ROOF)
_SQUARE_IN: Final = (0.78, 0.36)
_DARK: Final = 0.55
"""Above this share of the scale the text is white."""


def has_heatmap(sweep: Sweep) -> bool:
    """Two axes with several values each, and few enough to read, and something to show."""
    sides = [len(axis.values) for axis in sweep.axes]
    fits = len(sides) == 2 and min(sides) > 1 and max(sides) <= MAX_SIDE
    return fits and bool(present(sweep, _QUANTITIES))


def sweep_heatmap(sweep: Sweep, kind: str) -> bytes:
    """Bytes of an `svg`, `pdf` or `png`; for a sweep that `has_heatmap`."""
    quantities = present(sweep, _QUANTITIES)
    down, across = sweep.axes
    width = len(across.values) * _SQUARE_IN[0] + 1.3
    height = len(down.values) * _SQUARE_IN[1] + 0.9
    columns = max(1, min(len(quantities), int(11 // width)))
    rows = -(-len(quantities) // columns)
    with styled():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
        for place, quantity in enumerate(quantities):
            _draw(figure.add_subplot(rows, columns, place + 1), sweep, quantity)
        return figure_bytes(figure, kind)


def _draw(panel: "Axes", sweep: Sweep, quantity: Quantity) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    down, across = sweep.axes
    points = [point for cell in sweep.cells if (point := quantity.point(cell)) is not None]
    low, high = min(points, default=0.0), max(points, default=0.0)
    for cell in sweep.cells:
        x = across.values.index(cell.changes[across.key])
        y = down.values.index(cell.changes[down.key])
        point = quantity.point(cell)
        share = None if point is None else (point - low) / (high - low) if high > low else 0.5
        color = "none" if share is None else colormaps["Blues"](0.08 + 0.82 * share)
        square = Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=color, edgecolor=GRID, linewidth=1)
        panel.add_patch(square)
        # Dark on a light square whatever the theme of the page: neither is one of its colours.
        ink = MUTED if share is None else "#ffffff" if share > _DARK else "#101418"
        text = cell.status.value if point is None else quantity.text(point)
        panel.text(x, y, text, ha="center", va="center", size=7.5, color=ink)
    panel.set_xlim(-0.5, len(across.values) - 0.5)
    panel.set_ylim(len(down.values) - 0.5, -0.5)
    panel.set_xticks(range(len(across.values)), [value_text(value) for value in across.values])
    panel.set_yticks(range(len(down.values)), [value_text(value) for value in down.values])
    panel.set_xlabel(axis_name(across.key), size=8)
    panel.set_ylabel(axis_name(down.key), size=8)
    panel.set_title(quantity.name, size=9, loc="left", color=INK)
    panel.tick_params(labelsize=7.5, length=0)
    for spine in panel.spines.values():
        spine.set_visible(False)
