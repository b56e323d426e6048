"""The diagnosis of a machine in the terminal: mark, name, detail, and what to do."""

from collections import Counter
from typing import Final, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from llmprof import units
from llmprof.schema.diagnosis import Check, Diagnosis
from llmprof.schema.environment import Environment

_STYLES: Final[dict[Literal["ok", "warn", "missing"], str]] = {
    "ok": "green",
    "warn": "yellow",
    "missing": "red",
}
"""Colour repeats what the word says, and never says anything alone."""


def render_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Print what the machine is, one row per check with its remedy below it, and the counts."""
    console.print(Text(_machine(diagnosis.environment)))
    console.print()
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column("status", no_wrap=True)
    table.add_column("check", no_wrap=True)
    table.add_column("detail", overflow="fold")
    for check in diagnosis.checks:
        status = Text(check.status, style=_STYLES[check.status])
        table.add_row(status, Text(check.name), _detail(check))
    console.print(table)
    console.print()
    console.print(Text(_counts(diagnosis.checks)))


def _machine(environment: Environment) -> str:
    threads = units.number_of(environment.threads, "thread")
    return (
        f"{environment.device}: {environment.device_name}, {threads}, "
        f"{units.byte_count(environment.memory_bytes)} of host memory, {environment.python}, "
        f"{environment.os}"
    )


def _detail(check: Check) -> Text:
    return Text(check.detail if check.remedy is None else f"{check.detail}\n-> {check.remedy}")


def _counts(checks: tuple[Check, ...]) -> str:
    counts = Counter(check.status for check in checks)
    return ", ".join(f"{counts[status]} {status}" for status in _STYLES)
