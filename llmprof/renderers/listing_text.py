"""The saved runs as a table in the terminal."""

import re
from datetime import datetime
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from llmprof import units
from llmprof.renderers.printable import printable
from llmprof.schema.listing import Listing, RunSummary

_SHORT: Final = re.compile(r"[0-9a-f]{8}$")
_NOTHING: Final = "-"
_DEVICE: Final = 3
_ROOM_FOR_DEVICE: Final = 72
"""A narrower terminal shows the model's name instead."""


def render_listing(listing: Listing, console: Console, *, now: datetime) -> None:
    """Print one row per run, the newest last, so that it stands next to the prompt."""
    if not listing.runs:
        console.print(f"No saved runs in {printable(listing.folder)}.", markup=False)
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("run", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    table.add_column("model")  # the one that gives way where the terminal is narrow
    if console.width >= _ROOM_FOR_DEVICE:
        table.add_column("device", no_wrap=True)
    table.add_column("b x prompt", justify="right", no_wrap=True)
    table.add_column("decode", justify="right", no_wrap=True)
    flawed = any(summary.status != "complete" for summary in listing.runs)
    if flawed:
        table.add_column("status", no_wrap=True)
    for summary in listing.runs:
        cells = [*_cells(summary, now), *([summary.status] if flawed else [])]
        if console.width < _ROOM_FOR_DEVICE:
            del cells[_DEVICE]
        table.add_row(*(Text(printable(cell), no_wrap=True, overflow="ellipsis") for cell in cells))
    console.print(table)


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
