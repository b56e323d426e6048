"""Every file format of a gate's result, by the suffix of the file's name."""

import csv
import io
from collections.abc import Callable

from llmprof.errors import InputError
from llmprof.renderers.ci_json import render_gate_json
from llmprof.renderers.document_page import Page, render_page
from llmprof.renderers.gate_tables import effort, gate_table, headline, reasons_table
from llmprof.renderers.github import render_summary
from llmprof.renderers.junit import render_junit
from llmprof.renderers.tables import Table
from llmprof.renderers.what_ran import Fact
from llmprof.renderers.wording import one_line
from llmprof.schema.gate_result import GateResult, GateVerdict


def gate_html(result: GateResult, *, question: str = "") -> bytes:
    arms = [result.candidate] if result.baseline is None else [result.baseline, result.candidate]
    names = ("candidate",) if result.baseline is None else ("baseline", "candidate")
    stamp = () if result.verdict is GateVerdict.PASS else (result.verdict.value.upper(),)
    sections = [("Metrics", (gate_table(result),)), ("Reasons", (reasons_table(result),))]
    if result.pairs:
        sections.append(("Pairs", (_pairs_table(result),)))
    return render_page(
        Page(
            title=f"{one_line(result.title)}: {result.verdict.value.upper()}",
            brand="performance gate",
            when=f"{result.created:%Y-%m-%d %H:%M} UTC",
            stamps=stamp,
            facts=(
                *(
                    Fact(name, one_line(f"{arm.label}, torch {arm.versions.get('torch', '?')}"))
                    for name, arm in zip(names, arms, strict=True)
                ),
                Fact("device", one_line(result.device)),
                Fact("measured", effort(result)),
            ),
            headline=one_line(f"{headline(result)}."),
            figures=(),
            sections=tuple(sections),
            caveats=result.caveats,
            question=question,
        )
    )


def _pairs_table(result: GateResult) -> Table:
    names = list(result.pairs[0].baseline)
    return Table(
        caption="Every pair: candidate over baseline",
        columns=("look", "launch", "first", *names, "spoiled by"),
        rows=tuple(
            (
                pair.look.value,
                str(pair.launch),
                "candidate" if pair.candidate_first else "baseline",
                *(f"{pair.candidate[name] / pair.baseline[name]:.4f}" for name in names),
                pair.rejected or "",
            )
            for pair in result.pairs
        ),
        prose=frozenset({2, 3 + len(names)}),
    )


def gate_csv(result: GateResult) -> bytes:
    """One row per judgement, in base units."""
    rows = [
        {
            "metric": one.metric.name,
            "unit": one.metric.unit.value,
            "check": one.check.value,
            "verdict": one.verdict.value,
            "tolerance": one.tolerance,
            "at_most": one.at_most,
            "at_least": one.at_least,
            "baseline": one.baseline,
            "candidate": one.candidate,
            "ratio": one.ratio.point if one.ratio else None,
            "ratio_low": one.ratio.low if one.ratio else None,
            "ratio_high": one.ratio.high if one.ratio else None,
            "p_value": one.p_value,
            "minimum_detectable": one.minimum_detectable,
        }
        for one in result.judgements
    ]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]) if rows else ["metric"], lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode()


RENDERERS: dict[str, Callable[[GateResult], bytes]] = {
    ".html": gate_html,
    ".md": render_summary,
    ".json": render_gate_json,
    ".csv": gate_csv,
    ".xml": render_junit,
}


def check_gate_suffix(suffix: str) -> None:
    """Raises InputError for a name that ends in no known format, before anything is measured."""
    if suffix.lower() not in RENDERERS:
        raise InputError(
            f"no format of a gate's result for a name that ends in {suffix!r}",
            remedy=f"Known suffixes: {' '.join(RENDERERS)}",
        )


def render_gate_file(result: GateResult, suffix: str) -> bytes:
    check_gate_suffix(suffix)
    return RENDERERS[suffix.lower()](result)
