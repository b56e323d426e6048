"""The judged run as one self-contained page: no network, complete without JavaScript."""

import json
from typing import Any, NamedTuple

from llmprof import units
from llmprof.renderers.ceilings_tables import cached_table, roof_table, rounds_table
from llmprof.renderers.inline_svg import inline_svg
from llmprof.renderers.ledger_figure import ledger_figure
from llmprof.renderers.levers_text import lever_tables
from llmprof.renderers.ops_tables import ops_table
from llmprof.renderers.phase_cards import phase_cards
from llmprof.renderers.provenance import environment_facts, kernel_facts, settings_facts
from llmprof.renderers.roofline_figure import HOW_TO_READ, roofline_figure
from llmprof.renderers.rounds_figure import rounds_figure
from llmprof.renderers.tables import (
    Table,
    evidence_table,
    groups_table,
    parts_table,
    phases_table,
    points_table,
    sensitivities_table,
)
from llmprof.renderers.what_ran import facts
from llmprof.renderers.wording import model_name, one_line, point_key, stamps
from llmprof.schema.report import Report, RooflinePoint

_RAW: dict[str, Any] = {
    "run": {
        "rounds": True,
        "grouped": True,
        "traced": True,
        "trace": True,
        "counted": True,
        "stated_costs": True,
        "weights": {"tensors"},
        "ceilings": {"environment"},
    }
}
"""Left out of the data in the page: the run file has it."""
_UNSAFE_IN_SCRIPT = {char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


class Figure(NamedTuple):
    """A drawing and, beside it, the same in figures."""

    svg: str
    caption: str
    tables: tuple[Table, ...]


def render_html(report: Report) -> bytes:
    """UTF-8; equal for equal reports: every time and date comes from the report."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("llmprof", "renderers/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(**_context(report)).encode()


def _context(report: Report) -> dict[str, Any]:
    run = report.run
    return {
        "title": f"{model_name(report)} on {one_line(run.environment.device_name)}",
        "run": run,
        "created": f"{run.created:%Y-%m-%d %H:%M} UTC",
        "model": model_name(report),
        "stamps": stamps(report),
        "facts": facts(report),
        "headline": one_line(report.headline),
        "cards": phase_cards(report),
        "caveats": report.caveats,
        "roofline": _roofline(report),
        "ledger": _ledger(report),
        "rounds": _rounds(report),
        "groups": tuple(groups_table(ledger) for ledger in report.ledgers),
        "ops": tuple(map(ops_table, report.ops)),
        "phases": phases_table(report),
        "levers": lever_tables(report.levers),
        "judged": _with_rows(sensitivities_table(report.ledgers), evidence_table(report)),
        "ceilings": _with_rows(roof_table(report), cached_table(report)),
        "environment": environment_facts(report),
        "kernels": kernel_facts(report),
        "settings": settings_facts(report),
        "command": one_line(" ".join(run.tool.argv)),
        "data": _data(report),
    }


def _roofline(report: Report) -> Figure:
    described = "; ".join(map(_spoken, report.points)) or "no points"
    svg = inline_svg(
        roofline_figure(report, "svg", provenance=False),
        name="roofline",
        title="Roofline: FLOP/s over FLOP/byte, both logarithmic",
        description=f"{described}.",
        tooltips={point_key(point): _spoken(point) for point in report.points},
    )
    caption = (
        "Measured ceilings (solid: read bandwidth and matmul, their interval as a band; thin: the "
        "skinny matmul of a decode step; dashed: the datasheet, where it is known) and where each "
        f"phase stands below them. {HOW_TO_READ}"
    )
    return Figure(svg, caption, _with_rows(points_table(report)))


def _spoken(point: RooflinePoint) -> str:
    return (
        f"{one_line(point.label)}: {units.significant(point.intensity_flops_per_byte)} FLOP/byte, "
        f"{units.flops_per_s(point.achieved_flops_per_s.point)}, "
        f"{units.percent(point.roof_fraction.point)} of its roof"
    )


def _ledger(report: Report) -> Figure:
    svg = inline_svg(
        ledger_figure(report, "svg"),
        name="ledger",
        title="Ledger: the parts of one step's time, by phase",
        description="The tables below hold the same figures.",
    )
    caption = (
        "Where the time of one step goes; hatched below each bar: work that costs nothing now."
    )
    return Figure(svg, caption, tuple(parts_table(ledger) for ledger in report.ledgers))


def _rounds(report: Report) -> Figure:
    svg = inline_svg(
        rounds_figure(report, "svg"),
        name="rounds",
        title="Ceilings and steps over the rounds, each relative to its median",
        description="The table below holds the same figures.",
    )
    caption = "Whether the machine stood still: a step that moves with its ceiling is the machine's doing."
    return Figure(svg, caption, _with_rows(rounds_table(report)))


def _with_rows(*tables: Table) -> tuple[Table, ...]:
    return tuple(table for table in tables if table.rows)


def _data(report: Report) -> str:
    """The judged part of the report as JSON that cannot end its script element."""
    text = json.dumps(report.model_dump(mode="json", exclude=_RAW), separators=(",", ":"))
    for char, escaped in _UNSAFE_IN_SCRIPT.items():
        text = text.replace(char, escaped)
    return text
