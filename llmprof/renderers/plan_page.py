"""A plan as one self-contained page."""

import shlex

from llmprof import units
from llmprof.renderers.document_page import Page, render_page
from llmprof.renderers.inline_svg import inline_svg
from llmprof.renderers.plan_figure import plan_figure
from llmprof.renderers.plan_tables import (
    compared_table,
    context_table,
    effects_table,
    impossible_lines,
    runs_table,
    sequences_table,
)
from llmprof.renderers.plan_words import asked_line, headline, memory_line, rates_line, title
from llmprof.renderers.provenance import dotted_settings
from llmprof.renderers.tables import Table
from llmprof.renderers.verification_words import verification_lines
from llmprof.renderers.what_ran import Fact
from llmprof.renderers.wording import one_line
from llmprof.schema.plan import Plan


def plan_page(plan: Plan, *, question: str = "") -> bytes:
    """UTF-8; equal for equal plans. `question` is what the plan was made to answer."""
    sentences = (
        headline(plan),
        *(asked_line(plan, point) for point in plan.asked),
        *verification_lines(plan),
    )
    return render_page(
        Page(
            title=title(plan),
            brand="what fits into memory",
            when=f"planned by llmprof {plan.tool.version}; nothing was measured"
            if plan.verification is None
            else f"planned and checked with the engine by llmprof {plan.tool.version}",
            stamps=(),
            facts=_facts(plan),
            headline=" ".join(sentences),
            figures=(_figure(plan),),
            sections=_sections(plan),
            caveats=plan.caveats,
            question=question,
        )
    )


def _facts(plan: Plan) -> tuple[Fact, ...]:
    line = rates_line(plan)
    return (
        Fact("memory", memory_line(plan)),
        Fact("to the byte", plan.capacity_formula),
        Fact("KV per token", f"{units.exact(plan.kv_bytes_per_token)} bytes: {plan.kv_formula}"),
        Fact("one context", plan.context_formula),
        *((Fact("rates", line),) if line else ()),
    )


def _figure(plan: Plan) -> tuple[str, str]:
    svg = inline_svg(
        plan_figure(plan, "svg"),
        name="plan",
        title="Sequences that fit by context, and predicted decode speed",
        description="The tables below hold the same figures.",
    )
    return svg, (
        "Left: below a line everything fits, above it memory runs out. Right: the least time of a "
        "decode step at the stated rates, with as many sequences as fit."
        if plan.rates
        else "Below a line everything fits, above it memory runs out."
    )


def _sections(plan: Plan) -> tuple[tuple[str, tuple[Table, ...]], ...]:
    checked: tuple[tuple[str, tuple[Table, ...]], ...] = ()
    if plan.verification is not None:
        checked = (("Checked with the engine", (compared_table(plan), runs_table(plan))),)
    return (
        ("By context", (context_table(plan),)),
        ("By sequences", (sequences_table(plan),)),
        ("What each lever does", (effects_table(plan),)),
        *checked,
        ("Assumed", (_assumed(plan),)),
        ("Provenance", (_settings(plan),)),
    )


def _assumed(plan: Plan) -> Table:
    lines = (*plan.assumptions, *impossible_lines(plan))
    return Table(
        caption="What the figures take for granted",
        columns=("number", "assumption"),
        rows=tuple((str(index), text) for index, text in enumerate(lines, 1)),
        prose=frozenset({1}),
    )


def _settings(plan: Plan) -> Table:
    command = ("command", one_line(shlex.join(plan.tool.argv)))
    origin = ("tensors read from", plan.origin)
    return Table(
        caption=f"Settings (llmprof {plan.tool.version})",
        columns=("setting", "value"),
        rows=(command, origin, *dotted_settings(plan.settings)),
        prose=frozenset({1}),
    )
