"""A table that is wider than its terminal: what every row says goes above it, long texts below it."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from rich.cells import cell_len

_GAP = 2
_SPARED = ("median", "spread")
"""Columns that a narrow terminal does without, in this order: JSON and wider terminals have them."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """Cells as they are read: text up to `first_number`, then numbers, the last column text again."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    first_number: int
    above: tuple[str, ...] = ()
    """What holds for all rows: "level LLC or DRAM"."""
    below: str = ""
    """The texts of a last column that did not fit, each with the rows it belongs to."""


def fitted(table: TextTable, width: int) -> TextTable:
    """`table` without what has no room in `width` cells; no cell is cut or broken."""
    if table.rows and _width(table) > width:
        table = _said_once(table)
    if table.rows and _width(table) > width:
        table = _last_below(table)
    for name in _SPARED:
        if table.rows and _width(table) > width and name in table.columns:
            table = _without(table, [table.columns.index(name)])
    return table


def _width(table: TextTable) -> int:
    columns = zip(table.columns, *table.rows, strict=True)
    cells = [max(map(cell_len, column)) for column in columns]
    return sum(cells) + _GAP * (len(cells) - 1)


def _said_once(table: TextTable) -> TextTable:
    """Text columns after the first in which all rows say the same."""
    same = [
        index
        for index in range(1, table.first_number)
        if len({row[index] for row in table.rows}) == 1
    ]
    above = tuple(f"{table.columns[index]} {table.rows[0][index]}" for index in same)
    return replace(_without(table, same), above=above)


def _last_below(table: TextTable) -> TextTable:
    """Each text once, with the rows that it stands for."""
    last = len(table.columns) - 1
    texts: dict[str, list[str]] = {}
    for row in table.rows:
        texts.setdefault(row[last], []).append(_row_name(table, row))
    told = "; ".join(
        f"{text} ({', '.join(dict.fromkeys(rows))})" if len(texts) > 1 else text
        for text, rows in texts.items()
    )
    return replace(_without(table, [last]), below=f"{table.columns[last]}: {told}")


def _row_name(table: TextTable, row: tuple[str, ...]) -> str:
    """By its first cell, and by its other texts and first number where that leaves the text open."""
    alike = {other[-1] for other in table.rows if other[0] == row[0]}
    if len(alike) == 1:
        return row[0]
    rest = range(1, table.first_number + 1)
    return " ".join([row[0], *(f"{table.columns[i]} {row[i]}" for i in rest)])


def _without(table: TextTable, dropped: Collection[int]) -> TextTable:
    kept = [index for index in range(len(table.columns)) if index not in dropped]
    return replace(
        table,
        columns=tuple(table.columns[index] for index in kept),
        rows=tuple(tuple(row[index] for index in kept) for row in table.rows),
        first_number=sum(index < table.first_number for index in kept),
    )
