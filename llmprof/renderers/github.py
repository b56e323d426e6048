"""A gate's result for GitHub: the step summary, annotations, and github-action-benchmark's data.

Sources: GitHub's workflow commands (escapes of `%`, line ends, `:` and `,`) and step summaries;
github-action-benchmark's README for its custom tools.
"""

import json

from llmprof.renderers.gate_tables import effort, gate_table, headline, reasons_table, sentence
from llmprof.renderers.markdown import code, details, escaped, table_lines
from llmprof.renderers.wording import one_line
from llmprof.schema.gate_result import GateResult, GateVerdict, Judgement
from llmprof.schema.metric import Better, Unit

MAX_SUMMARY_BYTES = 60_000
"""GitHub drops a step's summary whole where it is above 1 MiB; several steps share a page."""
_SCALES = {Unit.SECONDS: (1e3, "ms"), Unit.FRACTION: (100.0, "%")}
_UNIT_NAMES = {Unit.TOKENS_PER_S: "tok/s", Unit.BYTES: "bytes", Unit.COUNT: "ops"}


def render_summary(result: GateResult) -> bytes:
    """GitHub-flavoured Markdown for the page of a step, or for a pull request."""
    lines = [
        f"### llmprof gate: {result.verdict.value.upper()}",
        "",
        f"{escaped(one_line(headline(result)))}.",
        "",
        *table_lines(gate_table(result)),
        "",
        *(f"- *Caveat.* {escaped(one_line(caveat.message))}" for caveat in result.caveats),
        "",
    ]
    folded = details("What each verdict rests on", table_lines(reasons_table(result)))
    arms = f"candidate {code(result.candidate.label)}"
    if result.baseline:
        arms = f"baseline {code(result.baseline.label)}, {arms}"
    last = [
        f"{escaped(one_line(result.title))} on {escaped(one_line(result.device))}, {arms}; "
        f"{effort(result)}.",
        "",
    ]
    text = "\n".join([*lines, *folded, *last])
    if len(text.encode()) > MAX_SUMMARY_BYTES:
        text = "\n".join([*lines, *last])
    return text.encode()


def render_annotations(result: GateResult) -> str:
    """At most one error, one warning and one notice: GitHub keeps ten of each per step."""
    groups = (
        ("error", "regression", [one for one in result.judgements if _is(one, GateVerdict.FAIL)]),
        (
            "warning",
            "no verdict",
            [
                one
                for one in result.judgements
                if _is(one, GateVerdict.INCONCLUSIVE) or _is(one, GateVerdict.UNSTABLE)
            ],
        ),
        ("notice", "better", [one for one in result.judgements if one.improved]),
    )
    return "".join(
        _annotation(level, title, judgements, result)
        for level, title, judgements in groups
        if judgements
    )


def _is(one: Judgement, verdict: GateVerdict) -> bool:
    return one.verdict is verdict


def _annotation(level: str, title: str, judgements: list[Judgement], result: GateResult) -> str:
    properties = {"title": f"llmprof gate: {title}"}
    if result.location:
        properties = {
            "file": result.location.file,
            "line": str(result.location.line),
            **properties,
        }
    named = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    message = "\n".join(one_line(sentence(one)) for one in judgements)
    return f"::{level} {named}::{_data(message)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def render_benchmark(result: GateResult, better: Better) -> bytes:
    """github-action-benchmark's customSmallerIsBetter or customBiggerIsBetter: one file for each.

    For its trend page; let the gate's exit code decide (`fail-on-alert: false`).
    """
    entries = []
    for one in result.judgements:
        if one.metric.better is not better or one.candidate is None:
            continue
        scale, unit = _SCALES.get(one.metric.unit, (1.0, ""))
        entry: dict[str, object] = {
            "name": f"{one_line(result.title)} / {one.metric.name}",
            "unit": unit or _UNIT_NAMES[one.metric.unit],
            "value": one.candidate * scale,
            "extra": f"device: {one_line(result.device)}\nverdict: {one.verdict.value}",
        }
        if one.ratio is not None and one.ratio.num_samples > 1:
            half = (one.ratio.high - one.ratio.low) / 2 / one.ratio.point
            entry["range"] = f"± {100 * half:.1f}%"
        entries.append(entry)
    return (json.dumps(entries, indent=2, ensure_ascii=False) + "\n").encode()
