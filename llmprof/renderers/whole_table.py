"""A table that is never cut: where the terminal is narrower, its rows become lines of words."""

from collections.abc import Collection, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from llmprof.renderers.text_layout import wrap

_GAP = 2
"""Cells between two columns of a table without a box."""


def print_table(
    console: Console,
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    left: Collection[int] = (0,),
    broken: Collection[int] = (),
    header_style: str = "table.header",
) -> None:
    """Side by side where every cell has room, else row by row.

    Args:
        console: where it goes; its width decides.
        columns: their names.
        rows: a cell for each column.
        left: columns that hold text; the others hold numbers.
        broken: columns whose cells may go over several lines, between words.
        header_style: of the names.
    """
    plain = [[str(cell) for cell in row] for row in rows]
    if not fits(columns, plain, console.width, broken=broken):
        for line in row_lines(columns, rows, console.width):
            console.print(line)
        return
    table = Table(box=None, pad_edge=False, header_style=header_style)
    for index, column in enumerate(columns):
        justify: Literal["left", "right"] = "left" if index in left else "right"
        table.add_column(column, justify=justify, no_wrap=index not in broken)
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    console.print(table)


def fits(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    broken: Collection[int] = (),
) -> bool:
    """Whether every cell stands whole in `width`; in columns that may be `broken`, every word."""
    needed = [
        max(cell_len(part) for cell in column for part in _parts(cell, words=index in broken))
        for index, column in enumerate(zip(columns, *rows, strict=True))
    ]
    return sum(needed) + _GAP * (len(needed) - 1) <= width


def _parts(cell: str, *, words: bool) -> list[str]:
    return (cell.split() if words else cell.splitlines()) or [""]


def row_lines(
    columns: Sequence[str], rows: Sequence[Sequence[str | Text]], width: int
) -> list[Text]:
    """Each row in words: its first cell, then the name of each column with what stands in it."""
    return [line for row in rows for line in wrap(_sentence(columns, row), width)]


def _sentence(columns: Sequence[str], row: Sequence[str | Text]) -> Text:
    first, *others = row
    told = [
        Text.assemble(f"{column} " if column else "", cell)
        for column, cell in zip(columns[1:], others, strict=True)
        if cell
    ]
    return Text.assemble(first, ": ", Text(", ").join(told)) if told else Text.assemble(first)
