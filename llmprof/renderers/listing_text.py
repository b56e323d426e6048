"""The saved runs as a table in the terminal."""

import re
from datetime import datetime
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from llmprof import units
from llmprof.renderers.printable import printable
from llmprof.renderers.whole_table import fits, row_lines
from llmprof.schema.listing import Listing, RunSummary

_SHORT: Final = re.compile(r"[0-9a-f]{8}$")
_NOTHING: Final = "-"
_MODEL, _DEVICE = 2, 3
_NUMBERS: Final = ("age", "b x prompt", "decode")
_LEAST_OF_A_NAME: Final = 8
"""Cells of a model's name below which it says nothing."""
_ROOM_FOR_DEVICE: Final = 72
"""A narrower terminal shows the model's name instead."""


def render_listing(listing: Listing, console: Console, *, now: datetime) -> None:
    """Print one row per run, the newest last, so that it stands next to the prompt."""
    if not listing.runs:
        console.print(f"No saved runs in {printable(listing.folder)}.", markup=False)
        return
    columns, rows = _table(listing, now, with_device=console.width >= _ROOM_FOR_DEVICE)
    shortened = [
        [*row[:_MODEL], row[_MODEL][:_LEAST_OF_A_NAME], *row[_MODEL + 1 :]] for row in rows
    ]
    if not fits(columns, shortened, console.width):
        for line in row_lines(columns, rows, console.width):
            console.print(line)
        return
    table = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        number = column in _NUMBERS
        # A model's name is the one that gives way where the terminal is narrow.
        table.add_column(column, justify="right" if number else "left", no_wrap=index != _MODEL)
    for row in rows:
        table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in row))
    console.print(table)


def _table(
    listing: Listing, now: datetime, *, with_device: bool
) -> tuple[list[str], list[list[str]]]:
    """Names of the columns, and the rows; the status only where it says something."""
    columns = ["run", "age", "model", "device", "b x prompt", "decode"]
    rows = [[*_cells(summary, now)] for summary in listing.runs]
    if any(summary.status != "complete" for summary in listing.runs):
        columns.append("status")
        rows = [[*row, run.status] for row, run in zip(rows, listing.runs, strict=True)]
    if not with_device:
        for cells in (columns, *rows):
            del cells[_DEVICE]
    return columns, [[printable(cell) for cell in row] for row in rows]


def _cells(summary: RunSummary, now: datetime) -> tuple[str, ...]:
    return (
        short_name(summary.id),
        _NOTHING if summary.created is None else _age(summary.created, now),
        summary.model or _NOTHING,
        " ".join(filter(None, (summary.device, summary.dtype))) or _NOTHING,
        _shape(summary),
        _NOTHING if summary.decode_step_s is None else units.seconds(summary.decode_step_s),
    )


def short_name(run_id: str) -> str:
    """Return the eight hex digits at the end of an id, which every command takes; else the id."""
    match = _SHORT.search(run_id)
    return match[0] if match else run_id


def _age(created: datetime, now: datetime) -> str:
    return units.age((now - created).total_seconds())


def _shape(summary: RunSummary) -> str:
    if summary.batch is None or summary.prompt_tokens is None:
        return _NOTHING
    return f"{summary.batch:,} x {summary.prompt_tokens:,}"
