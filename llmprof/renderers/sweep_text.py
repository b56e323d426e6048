"""A sweep in the terminal: the table that fits, the choices, and what could not be measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from llmprof import units
from llmprof.renderers.sweep_columns import (
    DECODE_ROOF,
    DECODE_STEP,
    KV_PEAK,
    KV_TIME_SHARE,
    MIXED_STEP,
    OUTPUT_RATE,
    PREFILL_ROOF,
    PREFILL_STEP,
    TPOT,
    TTFT,
    limit_text,
)
from llmprof.renderers.sweep_words import (
    axis_names,
    caveat_lines,
    choice_lines,
    headline,
    outcome_lines,
    sweep_stamps,
    value_text,
)
from llmprof.renderers.text_layout import wrap_all
from llmprof.renderers.whole_table import fits, row_lines
from llmprof.renderers.wording import one_line
from llmprof.schema.cost import Phase
from llmprof.schema.sweep import CellStatus, Sweep, SweepCell

_GAP = "  "


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    cells: tuple[str, ...]
    importance: int
    """0 is always shown; the others are added in this order while they fit."""
    left: bool = False

    @property
    def width(self) -> int:
        return max(map(len, (self.name, *self.cells)))

    def padded(self, text: str) -> str:
        return text.ljust(self.width) if self.left else text.rjust(self.width)


def print_sweep(sweep: Sweep, console: Console, *, written: Sequence[str] = ()) -> None:
    """Title, table and notes, none of them wider than the console."""
    width = console.width
    title = Text.assemble(
        (one_line(sweep.model_name), "bold"),
        f"  on {one_line(sweep.device_name)} ({sweep.device})  ",
        (units.number_of(len(sweep.cells), "cell"), "bold"),
    )
    for line in wrap_all(
        [title, *(Text(stamp, "bold yellow") for stamp in sweep_stamps(sweep))], width
    ):
        console.print(line)
    console.print()
    _print_table(sweep, console)
    console.print()
    for line in wrap_all(_notes(sweep, written), width):
        console.print(line)


def _print_table(sweep: Sweep, console: Console) -> None:
    """The columns that fit; where not even axes and rates do, row by row."""
    columns = _fitting(_columns(sweep), console.width)
    names = [column.name for column in columns]
    rows = [[column.cells[index] for column in columns] for index in range(len(sweep.cells))]
    styles = ["" if cell.status is CellStatus.MEASURED else "yellow" for cell in sweep.cells]
    if not fits(names, rows, console.width):
        for row, style in zip(rows, styles, strict=True):
            named = [f"{names[0]} {row[0]}", *row[1:]]
            for line in row_lines(names, [named], console.width):
                line.stylize(style)
                console.print(line)
        return
    console.print(_line(columns, names, "dim"))
    for row, style in zip(rows, styles, strict=True):
        console.print(_line(columns, row, style))


def _line(columns: Sequence[_Column], cells: Sequence[str], style: str) -> Text:
    padded = [column.padded(cell) for column, cell in zip(columns, cells, strict=True)]
    return Text(_GAP.join(padded).rstrip(), style)


def _columns(sweep: Sweep) -> list[_Column]:
    """In the order in which they stand."""
    axes = [
        _Column(name, tuple(value_text(cell.changes[axis.key]) for cell in sweep.cells), 0)
        for axis, name in zip(sweep.axes, axis_names(sweep.axes), strict=True)
    ]
    texts: list[tuple[str, Callable[[SweepCell], str], int]] = [
        (PREFILL_STEP.name, PREFILL_STEP.cell_text, 4),
        (PREFILL_ROOF.name, PREFILL_ROOF.cell_text, 9),
        (DECODE_STEP.name, DECODE_STEP.cell_text, 2),
        ("interval", DECODE_STEP.interval_text, 10),
        (MIXED_STEP.name, MIXED_STEP.cell_text, 8),
        (DECODE_ROOF.name, DECODE_ROOF.cell_text, 3),
        (KV_TIME_SHARE.name, KV_TIME_SHARE.cell_text, 7),
        (TTFT.name, TTFT.cell_text, 5),
        (TPOT.name, TPOT.cell_text, 6),
        (KV_PEAK.name, KV_PEAK.cell_text, 12),
    ]
    quantities = [_Column(name, tuple(map(text, sweep.cells)), rank) for name, text, rank in texts]
    limits = tuple(limit_text(cell, Phase.DECODE) for cell in sweep.cells)
    return [
        *axes,
        _Column(OUTPUT_RATE.name, tuple(map(_rate_or_status, sweep.cells)), 0),
        *(column for column in quantities if any(column.cells)),
        *([_Column("decode limit", limits, 11, left=True)] if any(limits) else []),
    ]


def _rate_or_status(cell: SweepCell) -> str:
    if cell.status is CellStatus.MEASURED:
        return OUTPUT_RATE.cell_text(cell) or "none"
    rate = OUTPUT_RATE.cell_text(cell)
    return f"{rate} ({cell.status.value})" if rate else cell.status.value


def _fitting(columns: Sequence[_Column], width: int) -> list[_Column]:
    shown = {id(column) for column in columns if not column.importance}
    used = sum(column.width + len(_GAP) for column in columns if not column.importance)
    for column in sorted(columns, key=lambda one: one.importance):
        needed = column.width + len(_GAP)
        if column.importance and used + needed - len(_GAP) <= width:
            shown.add(id(column))
            used += needed
    return [column for column in columns if id(column) in shown]


def _notes(sweep: Sweep, written: Sequence[str]) -> list[Text]:
    notes = [
        Text(headline(sweep)),
        *map(Text, choice_lines(sweep)),
        *map(Text, outcome_lines(sweep)),
    ]
    caveats = caveat_lines(sweep)
    if caveats:
        notes.append(Text(f"caveats: {', '.join(caveats)}"))
    notes += [Text(f"written: {path}") for path in written]
    if not written:
        notes.append(
            Text("next: the same command with -o FILE.html (.md .csv .json .png .svg .pdf)")
        )
    return notes
