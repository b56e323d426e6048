"""The report as Markdown, short enough for a pull request."""

import shlex
from collections.abc import Sequence

from llmprof import units
from llmprof.renderers.confirmation_tables import (
    confirmation_tables,
    outputs_words,
    when_words,
)
from llmprof.renderers.estimates import point_and_interval
from llmprof.renderers.markdown import code, details, escaped, table_lines
from llmprof.renderers.ops_tables import ops_table
from llmprof.renderers.tables import Table, groups_table, parts_table
from llmprof.renderers.what_ran import facts
from llmprof.renderers.wording import (
    LIMIT_NAMES,
    SATURATION_NAMES,
    TOKEN_NAMES,
    model_name,
    one_line,
    stamps,
    unsaid_reasons,
    verdict_words,
)
from llmprof.schema.confirmation import Confirmation
from llmprof.schema.measurement import Caveat, PhaseMeasurement
from llmprof.schema.report import Report
from llmprof.schema.verdict import Limit, Verdict


def render_markdown(reports: Sequence[Report]) -> bytes:
    """GitHub-flavoured Markdown, one section per run."""
    return "\n".join(_section(report) for report in reports).encode()


def _section(report: Report) -> str:
    lines = [f"### llmprof: {escaped(model_name(report))}", ""]
    lines += [line for stamp in stamps(report) for line in (f"**{escaped(stamp)}**", "")]
    lines += [escaped(one_line(report.headline)), "", *table_lines(_summary(report)), ""]
    lines += [_verdict(verdict) for verdict in report.verdicts]
    lines += [f"- *Caveat.* {_caveat(caveat)}" for caveat in report.caveats]
    lines.append("")
    lines += details(
        "What ran on what", [f"- {f.label}: {escaped(f.value)}" for f in facts(report)]
    )
    for confirmation in report.run.confirmations:
        lines += _confirmation(confirmation)
    for ledger in report.ledgers:
        lines += details(f"Ledger of {ledger.phase.value}", table_lines(parts_table(ledger)))
        lines += details(f"Op groups of {ledger.phase.value}", table_lines(groups_table(ledger)))
    for table in report.ops:
        lines += details(f"Ops of {table.phase.value}", table_lines(ops_table(table)))
    run = report.run
    command = code(shlex.join(run.tool.argv))
    lines += [f"Run {code(run.id)}, llmprof {code(run.tool.version)}: {command}", ""]
    return "\n".join(lines)


def _confirmation(confirmation: Confirmation) -> list[str]:
    """The outcome in the open, where the difference lies folded."""
    speedups, *residuals = confirmation_tables(confirmation)
    lines = [f"**Predicted, then measured.** {escaped(speedups.caption)}", ""]
    lines += [*table_lines(speedups), ""]
    lines += [escaped(f"{when_words(confirmation)}; {outputs_words(confirmation.outputs)}."), ""]
    for table in residuals:
        lines += details(escaped(table.caption), table_lines(table))
    return lines


def _summary(report: Report) -> Table:
    return Table(
        caption="",
        columns=("phase", "step", "rate", "limit", "saturation", "of its roof"),
        rows=tuple(_summary_row(phase, report) for phase in report.phases),
        prose=frozenset({3, 4}),
    )


def _summary_row(phase: PhaseMeasurement, report: Report) -> tuple[str, ...]:
    verdict = next((v for v in report.verdicts if v.phase is phase.phase), None)
    fraction = verdict.roof_fraction if verdict else None
    rate = units.significant(phase.new_tokens_per_s.point)
    return (
        phase.phase.value,
        point_and_interval(phase.step_s, units.seconds),
        f"{rate} {TOKEN_NAMES[phase.phase]}",
        LIMIT_NAMES[verdict.limit] if verdict else "not judged",
        SATURATION_NAMES[verdict.saturation] if verdict else "not judged",
        point_and_interval(fraction, units.percent) if fraction else "not judged",
    )


def _verdict(verdict: Verdict) -> str:
    reasons = "; ".join(unsaid_reasons(verdict))
    head = "Because" if verdict.limit is Limit.INCONCLUSIVE else "Not firm"
    why = f" {head}: {escaped(reasons)}." if reasons else ""
    sentence = escaped(one_line(verdict.sentence))
    return f"- **{verdict.phase.value}: {verdict_words(verdict)}.** {sentence}{why}"


def _caveat(caveat: Caveat) -> str:
    where = f"{caveat.phase.value}: " if caveat.phase else ""
    remedy = f" → {escaped(one_line(caveat.remedy))}" if caveat.remedy else ""
    return f"{where}{escaped(one_line(caveat.message))}{remedy}"
