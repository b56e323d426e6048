"""The tables of a sweep as text: page and Markdown show the same cells."""

from collections.abc import Callable, Sequence

from llmprof.renderers.estimates import shared_confidence
from llmprof.renderers.sweep_columns import BYTES, TIMES, Quantity, limit_text, present
from llmprof.renderers.sweep_words import (
    axis_names,
    limits_text,
    spelled,
    unmeasured,
    value_text,
)
from llmprof.renderers.tables import Table
from llmprof.schema.cost import Phase
from llmprof.schema.measurement import Estimate
from llmprof.schema.sweep import Sweep, SweepCell


def cells_table(sweep: Sweep) -> Table:
    """One row per cell, in the order of the grid: medians, what limits, what became of it."""
    limits = [
        (f"{phase.value} limit", phase)
        for phase in Phase
        if any(limit_text(cell, phase) for cell in sweep.cells)
    ]
    times = present(sweep, TIMES)
    columns = (
        *axis_names(sweep.axes),
        "status",
        *(quantity.name for quantity in times),
        *(name for name, _ in limits),
    )
    status = len(sweep.axes)
    return Table(
        caption="Cells: medians over rounds",
        columns=columns,
        rows=tuple(
            (
                *axis_cells(cell),
                cell.status.value,
                *(quantity.cell_text(cell) for quantity in times),
                *(limit_text(cell, phase) for _, phase in limits),
            )
            for cell in sweep.cells
        ),
        prose=frozenset({status, *range(status + 1 + len(times), len(columns))}),
    )


def axis_cells(cell: SweepCell) -> tuple[str, ...]:
    return tuple(map(value_text, cell.changes.values()))


def intervals_table(sweep: Sweep) -> Table:
    """The intervals of the same medians, and the rounds that they rest on."""
    times = present(sweep, TIMES)
    return _measured_table(
        sweep,
        f"Intervals ({_confidence(sweep, times)})",
        [(quantity.name, quantity.interval_text) for quantity in times]
        + [("rounds used", _rounds)],
    )


def _rounds(cell: SweepCell) -> str:
    metrics = cell.metrics
    if metrics is None:
        return ""
    return f"{metrics.num_rounds - metrics.num_rejected_rounds} of {metrics.num_rounds}"


def _confidence(sweep: Sweep, quantities: Sequence[Quantity]) -> str:
    found = (quantity.of(cell) for cell in sweep.cells for quantity in quantities)
    return shared_confidence(
        one for one in found if isinstance(one, Estimate) and one.num_samples > 1
    )


def bytes_table(sweep: Sweep) -> Table:
    return _measured_table(
        sweep,
        "Bytes per decode step, counted from shapes, and what lies in memory",
        [(quantity.name, quantity.cell_text) for quantity in present(sweep, BYTES)],
    )


def _measured_table(
    sweep: Sweep, caption: str, columns: Sequence[tuple[str, Callable[[SweepCell], str]]]
) -> Table:
    return Table(
        caption=caption,
        columns=(*axis_names(sweep.axes), *(name for name, _ in columns)),
        rows=tuple(
            (*axis_cells(cell), *(text(cell) for _, text in columns))
            for cell in sweep.cells
            if cell.metrics is not None
        ),
    )


def choices_table(sweep: Sweep) -> Table:
    """The knee over the batch, and the largest batch within the limits, at each of the others."""
    asked = limits_text(sweep.base.sweep)
    rows = []
    for choice in sweep.choices:
        edge = " (largest measured)" if choice.knee_at_edge else ""
        row = [spelled(choice.others) or "every cell", f"{value_text(choice.knee)}{edge}"]
        if asked:
            within = choice.largest_within
            row.append("none" if within is None else value_text(within))
        rows.append(tuple(row))
    return Table(
        caption="Which batch: the knee is where output tok/s over TPOT is largest (Kleinrock's power)",
        columns=("at", "knee", *((f"largest within {asked}",) if asked else ())),
        rows=tuple(rows),
    )


def outcomes_table(sweep: Sweep) -> Table:
    """The cells without all their rounds, and why."""
    return Table(
        caption="Cells that were not measured to the end",
        columns=("status", "cells", "why"),
        rows=tuple(
            (status, "; ".join(spelled(cell.changes) for cell in cells), reason)
            for (status, reason), cells in unmeasured(sweep).items()
        ),
        prose=frozenset({1, 2}),
    )
