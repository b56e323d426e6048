"""A small roofline of Braille dots: log-log, refitted to whatever width there is."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from llmprof import units
from llmprof.renderers.estimates import point_and_interval
from llmprof.renderers.log_window import LogWindow, placeable, window_around
from llmprof.renderers.wording import is_whole_phase
from llmprof.schema.cost import Phase
from llmprof.schema.report import Report, Roof, RooflinePoint

HEIGHT = 7
"""Rows of the plotting area."""
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a Braille cell (Unicode block U+2800) by row and column of its dot."""
_STYLES = {Phase.PREFILL: "bold blue", Phase.DECODE: "bold red", Phase.MIXED: "bold magenta"}


class Canvas(NamedTuple):
    """A window of the log-log plane and the cells that it is drawn on."""

    window: LogWindow
    columns: int
    rows: int = HEIGHT

    def column(self, intensity: float) -> int:
        return math.floor(self.columns * self.window.across(intensity))

    def row(self, flops_per_s: float, dots: int = 1) -> int:
        """From the top, in `dots` per cell."""
        return math.floor(dots * self.rows * (1 - self.window.up(flops_per_s)))


def mark_of(point: RooflinePoint) -> str:
    """P, D or M for a whole phase; the small first letter of its name for a part of one."""
    if is_whole_phase(point):
        return point.phase.value[0].upper()
    return point.label.split()[-1][0].lower()


def roofline_lines(report: Report, width: int) -> list[Text]:
    """Legend, plot and axis; without ceilings or below 40 columns a table of the points."""
    if not placeable(report.points):
        return [Text("no roofline: no phase could be placed", "dim")]
    if report.roof is None or width < 40:
        return roofline_table(report)
    points = placeable(report.points)
    canvas = Canvas(window_around(report.roof, points), columns=width - 13)
    rows = _dots(report.roof, canvas)
    lines = [_axis_label(canvas, index) + row for index, row in enumerate(rows)]
    _place(lines, points, canvas)
    return [_legend(points, width), *lines, *_intensity_axis(report.roof, canvas)]


def roofline_table(report: Report) -> list[Text]:
    """One line per point, for narrow terminals and for terminals without Unicode."""
    return [_table_line(point) for point in report.points]


def _legend(points: Sequence[RooflinePoint], width: int) -> Text:
    entries = (Text(f"{mark_of(p)} {p.label.split()[-1]}", _STYLES[p.phase]) for p in points)
    legend = Text(" ").join(entries)
    legend.truncate(width, overflow="ellipsis")
    return legend


def _table_line(point: RooflinePoint) -> Text:
    line = Text(f"{mark_of(point)} ", _STYLES[point.phase])
    achieved = units.flops_per_s(point.achieved_flops_per_s.point)
    fraction = point_and_interval(point.roof_fraction, units.percent)
    intensity = units.significant(point.intensity_flops_per_byte)
    return line.append(
        f"{point.label}: {intensity} FLOP/byte, {achieved}, {fraction} of its roof", ""
    )


def _dots(roof: Roof, canvas: Canvas) -> list[Text]:
    """The envelope of the two measured ceilings, two by four dots to a cell."""
    cells = [[0] * canvas.columns for _ in range(canvas.rows)]
    above: int | None = None
    for dot in range(2 * canvas.columns):
        intensity = canvas.window.intensity_at((dot + 0.5) / (2 * canvas.columns))
        ceiling = min(roof.matmul_flops_per_s.point, intensity * roof.read_bytes_per_s.point)
        level = canvas.row(ceiling, dots=4)
        for filled in range(level, above if above is not None and above > level else level + 1):
            if 0 <= filled < 4 * canvas.rows:
                cells[filled // 4][dot // 2] |= _DOTS[filled % 4][dot % 2]
        above = level
    return [Text("".join(chr(0x2800 + bits) if bits else " " for bits in row)) for row in cells]


def _axis_label(canvas: Canvas, row: int) -> Text:
    """FLOP/s at the top and at the bottom edge, 12 cells wide with the axis."""
    if row not in (0, canvas.rows - 1):
        return Text("│".rjust(12), "dim")
    window = canvas.window
    value = window.high_flops_per_s if row == 0 else window.low_flops_per_s
    return Text(f"{units.si(value, 'FLOP/s', 2):>11}┤", "dim")


def _place(lines: list[Text], points: Sequence[RooflinePoint], canvas: Canvas) -> None:
    """Letters over the dots; a whole phase is drawn last, so that its parts never hide it."""
    for point in sorted(points, key=is_whole_phase):
        row = canvas.row(point.achieved_flops_per_s.point)
        line, at = lines[row], 12 + canvas.column(point.intensity_flops_per_byte)
        mark = Text(mark_of(point), _STYLES[point.phase])
        lines[row] = line[:at] + mark + line[at + 1 :]


def _intensity_axis(roof: Roof, canvas: Canvas) -> list[Text]:
    at = canvas.column(roof.ridge_flops_per_byte)
    rule = Text(" " * 11 + "└" + "─" * at + "┴" + "─" * (canvas.columns - at - 1), "dim")
    return [rule, Text(" " * 12 + _axis_numbers(roof, canvas, at), "dim")]


def _axis_numbers(roof: Roof, canvas: Canvas, ridge_column: int) -> str:
    """Both ends and the ridge point, below their places; the unit where there is room for it."""
    low = units.significant(canvas.window.low_intensity, 2)
    high = units.significant(canvas.window.high_intensity, 2)
    ridge = f"ridge {units.significant(roof.ridge_flops_per_byte)}"
    room = canvas.columns - len(low) - len(high) - 2
    if len(ridge) + len(" FLOP/byte") <= room:
        ridge += " FLOP/byte"
    last_start = canvas.columns - len(high) - 1 - len(ridge)
    start = max(min(ridge_column - len(ridge) // 2, last_start), len(low) + 1)
    left = low.ljust(start) + ridge
    return left + high.rjust(canvas.columns - len(left))
