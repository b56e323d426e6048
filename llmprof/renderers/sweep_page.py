"""A sweep as one self-contained page: figures over the grid, then the same in tables."""

import shlex

from llmprof.renderers.caveat_meanings import MEANINGS
from llmprof.renderers.document_page import Page, render_page
from llmprof.renderers.inline_svg import inline_svg
from llmprof.renderers.provenance import dotted_settings
from llmprof.renderers.sweep_figure import MAX_LINES, sweep_figure
from llmprof.renderers.sweep_heatmap import has_heatmap, sweep_heatmap
from llmprof.renderers.sweep_lines import lines
from llmprof.renderers.sweep_tables import (
    bytes_table,
    cells_table,
    choices_table,
    intervals_table,
    outcomes_table,
)
from llmprof.renderers.sweep_words import (
    axis_names,
    caveat_lines,
    headline,
    sweep_stamps,
    value_text,
)
from llmprof.renderers.tables import Table
from llmprof.renderers.what_ran import Fact
from llmprof.renderers.wording import one_line
from llmprof.schema.measurement import Caveat
from llmprof.schema.sweep import CellStatus, Sweep


def sweep_page(sweep: Sweep, *, question: str = "") -> bytes:
    """UTF-8; equal for equal sweeps: every time and date comes from the sweep.

    `question` is what the sweep was made to answer; the page opens with it.
    """
    return render_page(
        Page(
            title=f"{one_line(sweep.model_name)}: {', '.join(axis_names(sweep.axes))}",
            brand="how speed follows from settings",
            when=f"{sweep.created:%Y-%m-%d %H:%M} UTC · sweep {sweep.id}",
            stamps=sweep_stamps(sweep),
            facts=_facts(sweep),
            headline=headline(sweep),
            figures=_figures(sweep),
            sections=_sections(sweep),
            caveats=[_caveat(line) for line in caveat_lines(sweep)],
            question=question,
        )
    )


def _facts(sweep: Sweep) -> tuple[Fact, ...]:
    measured = sum(cell.status is CellStatus.MEASURED for cell in sweep.cells)
    base = sweep.base
    return (
        Fact("model", one_line(sweep.model_name)),
        Fact("device", f"{one_line(sweep.device_name)} ({sweep.device})"),
        *(
            Fact(name, ", ".join(map(value_text, axis.values)))
            for axis, name in zip(sweep.axes, axis_names(sweep.axes), strict=True)
        ),
        Fact("cells", f"{measured} of {len(sweep.cells)} measured"),
        Fact("rounds", f"{base.measure.rounds} per cell{_visits(base.sweep.interleave)}"),
    )


def _visits(count: int) -> str:
    return f" in {count} visits, the cells in turn" if count > 1 else ""


def _figures(sweep: Sweep) -> tuple[tuple[str, str], ...]:
    description = "The tables below hold the same figures."
    left_out = len(lines(sweep)) - MAX_LINES
    note = f" The first {MAX_LINES} of {len(lines(sweep))} lines are drawn." if left_out > 0 else ""
    drawn = [
        (
            inline_svg(
                sweep_figure(sweep, "svg"),
                name="sweep",
                title="Times, rates and shares over the axes of the sweep",
                description=description,
            ),
            "Medians over rounds with their intervals. Of the roof: least time at the ceilings that "
            "were measured beside the rounds, over time. KV of step: the ledger's part for reading "
            f"and writing the KV cache.{note}",
        )
    ]
    if has_heatmap(sweep):
        svg = inline_svg(
            sweep_heatmap(sweep, "svg"),
            name="map",
            title="The same over both axes",
            description=description,
        )
        drawn.append((svg, "Darker is more. A word stands where a cell has no number."))
    return tuple(drawn)


def _sections(sweep: Sweep) -> tuple[tuple[str, tuple[Table, ...]], ...]:
    sections = (
        ("Cells", (cells_table(sweep), intervals_table(sweep))),
        ("Which batch", (choices_table(sweep),)),
        ("Not measured", (outcomes_table(sweep),)),
        ("Bytes", (bytes_table(sweep),)),
        ("Provenance", (_settings_table(sweep), _runs_table(sweep))),
    )
    filled = ((title, tuple(t for t in tables if t.rows)) for title, tables in sections)
    return tuple((title, tables) for title, tables in filled if tables)


def _settings_table(sweep: Sweep) -> Table:
    swept = {axis.key for axis in sweep.axes}
    command = ("command", one_line(shlex.join(sweep.tool.argv)))
    settings = (pair for pair in dotted_settings(sweep.base) if pair[0] not in swept)
    return Table(
        caption=f"What the cells have in common (llmprof {sweep.tool.version})",
        columns=("setting", "value"),
        rows=(command, *settings),
        prose=frozenset({1}),
    )


def _runs_table(sweep: Sweep) -> Table:
    return Table(
        caption="Run files: llmprof report ID -o FILE.html shows one cell in full",
        columns=("cell", "runs"),
        rows=tuple(
            (", ".join(map(value_text, cell.changes.values())), ", ".join(cell.run_ids))
            for cell in sweep.cells
            if cell.run_ids
        ),
        prose=frozenset({1}),
    )


def _caveat(line: str) -> Caveat:
    """The cells' own words are in their run files: here stands what the code means."""
    code, _, where = line.partition(" ")
    known = MEANINGS.get(code)
    told = where.strip("()")
    if known is None:
        return Caveat(code=code, message=told)
    return Caveat(code=code, message=f"{told}. {known.meaning}", remedy=known.action)
