"""Speed over the axes of a sweep, and latency against throughput: small panels with one legend."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from llmprof import units
from llmprof.renderers.estimates import Formatter
from llmprof.renderers.figure_style import MUTED, figure_bytes, styled
from llmprof.renderers.point_labels import NamedPoint, name_points
from llmprof.renderers.sweep_columns import (
    DECODE_ROOF,
    DECODE_STEP,
    KV_TIME_SHARE,
    MIXED_STEP,
    OUTPUT_RATE,
    PREFILL_ROOF,
    PREFILL_STEP,
    TPOT,
    TTFT,
    Quantity,
    present,
)
from llmprof.renderers.sweep_lines import Line, is_numeric, lines, x_axis, x_position
from llmprof.renderers.sweep_words import axis_name, value_text
from llmprof.renderers.wording import one_line
from llmprof.schema.measurement import Estimate
from llmprof.schema.sweep import Sweep, SweepAxis, SweepCell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LINES: Final = 12
_COLORS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
"""Okabe and Ito, and a grey; a line that comes later has another marker and dash."""
_MARKERS: Final = ("o", "D", "s", "^", "v", "P", "X")
_DASHES: Final = ("-", "--", ":")
_PANEL_IN: Final = (3.3, 2.55)
_PLOT_PT: Final = (175, 130)
"""What is left of a panel for points, about."""
_HEADROOM: Final = 1.05
"""A mark at the edge is drawn whole."""
_COLUMNS: Final = 3
_LEGEND_ROW_IN: Final = 0.24
_WIDE_RANGE: Final = 4
"""An axis whose last value is so many times the first is drawn in powers of two."""
_QUANTITIES: Final = (
    OUTPUT_RATE,
    DECODE_STEP,
    MIXED_STEP,
    PREFILL_STEP,
    TTFT,
    DECODE_ROOF,
    PREFILL_ROOF,
    KV_TIME_SHARE,
)


class _Style(NamedTuple):
    color: str
    marker: str
    dash: str


def sweep_figure(sweep: Sweep, kind: str) -> bytes:
    """Bytes of an `svg`, `pdf` or `png`."""
    found = [line for line in lines(sweep) if any(cell.metrics for cell in line.cells)][:MAX_LINES]
    quantities = present(sweep, _QUANTITIES)
    trade_off = any(len(line.having(TPOT, OUTPUT_RATE)) > 1 for line in found)
    count = max(len(quantities) + trade_off, 1)
    columns = min(count, _COLUMNS)
    rows = -(-count // columns)
    legend_rows = -(-len(found) // columns) if len(found) > 1 else 0
    with styled():
        from matplotlib.figure import Figure

        width, height = columns * _PANEL_IN[0], rows * _PANEL_IN[1]
        total = height + legend_rows * _LEGEND_ROW_IN + 0.3
        figure = Figure(figsize=(width, total), layout="constrained")
        panels = [figure.add_subplot(rows, columns, place + 1) for place in range(count)]
        for panel, quantity in zip(panels, quantities, strict=False):
            _draw(panel, sweep, quantity, found)
        if trade_off:
            _draw_trade_off(panels[-1], sweep, found)
        if not quantities:
            panels[0].text(0.5, 0.5, "no cell was measured", ha="center", color=MUTED)
        figure.suptitle(
            f"{one_line(sweep.model_name)} on {one_line(sweep.device_name)}",
            size=10,
            x=0.01,
            ha="left",
        )
        if legend_rows and quantities:
            handles, labels = panels[0].get_legend_handles_labels()
            figure.legend(
                handles, labels, loc="outside lower left", ncols=columns, frameon=False, fontsize=8
            )
        return figure_bytes(figure, kind)


def _style(index: int) -> _Style:
    return _Style(
        _COLORS[index % len(_COLORS)],
        _MARKERS[index % len(_MARKERS)],
        _DASHES[index // len(_COLORS) % len(_DASHES)],
    )


def _draw(panel: "Axes", sweep: Sweep, quantity: Quantity, found: Sequence[Line]) -> None:
    axis = x_axis(sweep.axes)
    for index, line in enumerate(found):
        cells = line.having(quantity)
        _errorbar(
            panel,
            [x_position(axis, cell.changes[axis.key]) for cell in cells],
            [quantity.of(cell) for cell in cells],
            _style(index),
            label=line.label or quantity.name,
            connected=is_numeric(axis),
        )
    panel.set_title(quantity.name, size=9, loc="left")
    panel.set_xlabel(axis_name(axis.key), size=8)
    _scale_x(panel, axis)
    _finish(panel, quantity.text)


def _errorbar(
    panel: "Axes",
    x: Sequence[float],
    y: Sequence[Estimate | float | None],
    style: _Style,
    *,
    label: str,
    connected: bool,
) -> None:
    points = [one.point if isinstance(one, Estimate) else float(one or 0.0) for one in y]
    spans = [
        (one.point - one.low, one.high - one.point) if isinstance(one, Estimate) else (0, 0)
        for one in y
    ]
    below, above = zip(*spans, strict=True) if spans else ((), ())
    panel.errorbar(
        x,
        points,
        yerr=(below, above),
        color=style.color,
        marker=style.marker,
        linestyle=style.dash if connected else "none",
        markersize=4.5,
        linewidth=1.2,
        elinewidth=0.8,
        capsize=2,
        clip_on=False,
        label=label,
    )


def _scale_x(panel: "Axes", axis: SweepAxis) -> None:
    positions = [x_position(axis, value) for value in axis.values]
    if is_numeric(axis) and min(positions) > 0 and max(positions) >= _WIDE_RANGE * min(positions):
        panel.set_xscale("log", base=2)
    elif not is_numeric(axis):
        panel.set_xlim(-0.5, len(axis.values) - 0.5)
    panel.set_xticks(positions, [value_text(value) for value in axis.values])
    if len(axis.values) > 6:  # labels would run into each other
        panel.tick_params(axis="x", rotation=40)


def _finish(panel: "Axes", text: Formatter) -> None:
    from matplotlib.ticker import MaxNLocator

    panel.set_ylim(0, _HEADROOM * panel.get_ylim()[1])
    # Ticks at quarters would need more digits than they are written with.
    panel.yaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    panel.yaxis.set_major_formatter(lambda value, _: text(value))
    panel.tick_params(labelsize=7.5, length=3)
    panel.grid(True, axis="y")


def _draw_trade_off(panel: "Axes", sweep: Sweep, found: Sequence[Line]) -> None:
    """Output tok/s over TPOT; each point says its place on the x axis of the other panels."""
    axis, named = x_axis(sweep.axes), list[list[NamedPoint]]()
    for index, line in enumerate(found):
        cells, style = line.having(TPOT, OUTPUT_RATE), _style(index)
        panel.plot(
            [_known(TPOT, cell) for cell in cells],
            [_known(OUTPUT_RATE, cell) for cell in cells],
            color=style.color,
            marker=style.marker,
            linestyle=style.dash if is_numeric(axis) else "none",
            markersize=4.5,
            linewidth=1.2,
            clip_on=False,
        )
        named.append(
            [
                NamedPoint(
                    value_text(cell.changes[axis.key]),
                    _known(TPOT, cell),
                    _known(OUTPUT_RATE, cell),
                )
                for cell in cells
            ]
        )
    panel.set_title(f"throughput over latency, by {axis_name(axis.key)}", size=9, loc="left")
    panel.set_xlabel("TPOT", size=8)
    panel.set_ylabel("output tok/s", size=8)
    panel.set_xlim(0, _HEADROOM * panel.get_xlim()[1])
    panel.locator_params(axis="x", nbins=4)  # each label has a unit: more run into each other
    panel.xaxis.set_major_formatter(lambda value, _: TPOT.text(value))
    _finish(panel, units.significant)
    width_pt, height_pt = _PLOT_PT
    name_points(panel, named, connected=is_numeric(axis), width_pt=width_pt, height_pt=height_pt)


def _known(quantity: Quantity, cell: SweepCell) -> float:
    point = quantity.point(cell)
    assert point is not None, "only cells that have it are drawn"
    return point
