"""A plan in the terminal: the sum, the tables, the assumptions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rich.console import Console
from rich.text import Text

from llmprof import units
from llmprof.renderers.plan_tables import impossible_lines, tables
from llmprof.renderers.plan_words import asked_line, headline, memory_line, rates_line, title
from llmprof.renderers.tables import Table
from llmprof.renderers.text_layout import wrap_all
from llmprof.renderers.verification_words import verification_lines
from llmprof.renderers.wording import one_line
from llmprof.schema.plan import Plan

_SPARED: Final = ("each", "cache", "weights", "limit", "bound")
"""Columns that a narrow terminal does without, in this order."""


def print_plan(plan: Plan, console: Console, *, written: Sequence[str] = ()) -> None:
    """Nothing is wider than the console, but for tables that cannot be made narrower.

    A narrow terminal does without columns that follow from others; JSON and files have them.
    """
    _print(_facts(plan), console)
    for table in tables(plan):
        console.print()
        _print([Text(table.caption, "bold")], console)
        for line in _fitting_lines(table, console.width):
            console.print(line, soft_wrap=True)  # a narrow terminal breaks lines, and loses none
    console.print()
    _print(_notes(plan, written), console)


def _print(lines: Sequence[Text], console: Console) -> None:
    for line in wrap_all(lines, console.width):
        console.print(line)


def _facts(plan: Plan) -> list[Text]:
    each = " on each device" if plan.devices > 1 else ""
    found = [
        Text(title(plan), "bold"),
        Text(headline(plan), "bold green" if plan.effects[0].sequences else "bold yellow"),
        *(
            Text(asked_line(plan, point), "green" if point.fits else "yellow")
            for point in plan.asked
        ),
        Text(),
        _fact("memory", memory_line(plan)),
        Text(f"  {plan.capacity_formula}"),
        _fact("KV per token", f"{units.exact(plan.kv_bytes_per_token)} bytes{each}"),
        Text(f"  {plan.kv_formula}"),
        Text(f"  {plan.context_formula}"),
    ]
    line = rates_line(plan)
    return [*found, _fact("rates", line)] if line else found


def _fact(name: str, fact: str) -> Text:
    return Text.assemble((f"{name:14}", "bold"), fact)


def _fitting_lines(table: Table, width: int) -> list[Text]:
    """Without as many of the spared columns as it takes, in their order."""
    lines = _lines(table)
    for name in _SPARED:
        if max(line.cell_len for line in lines) <= width:
            break
        table = _without(table, name)
        lines = _lines(table)
    return lines


def _without(table: Table, name: str) -> Table:
    kept = [index for index, column in enumerate(table.columns) if column != name]
    return replace(
        table,
        columns=tuple(table.columns[index] for index in kept),
        rows=tuple(tuple(row[index] for index in kept) for row in table.rows),
        prose=frozenset(new for new, old in enumerate(kept) if old in table.prose),
    )


def _lines(table: Table) -> list[Text]:
    rows = (table.columns, *table.rows)
    widths = [max(len(row[index]) for row in rows) for index in range(len(table.columns))]
    left = {0, *table.prose}
    padded = [
        [
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    ]
    header, *others = ("  ".join(cells).rstrip() for cells in padded)
    return [Text(header, "dim"), *map(Text, others)]


def _notes(plan: Plan, written: Sequence[str]) -> list[Text]:
    notes = [Text(line, "bold") for line in verification_lines(plan)]
    notes += [Text(f"Assumed: {text}.") for text in plan.assumptions]
    notes += [Text(line) for line in impossible_lines(plan)]
    for caveat in plan.caveats:
        remedy = f" {caveat.remedy}" if caveat.remedy else ""
        notes.append(Text(f"Note: {one_line(caveat.message)}.{remedy}"))
    notes += [Text(f"written: {path}") for path in written]
    if not written:
        notes.append(Text("next: -o plan.html draws the frontier (.md .json .png .svg .pdf)"))
    return notes
