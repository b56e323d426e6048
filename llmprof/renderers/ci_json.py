"""A gate's result as GitLab's Code Quality report and as Bencher Metric Format.

Sources: GitLab's documentation of the Code Quality report format; Bencher's JSON schema (names of up
to 1024 characters, of measures up to 64).
"""

import hashlib
import json

from llmprof.renderers.gate_tables import sentence
from llmprof.renderers.wording import one_line
from llmprof.schema.gate_result import GateResult, GateVerdict

_SEVERITIES = {
    GateVerdict.FAIL: "major",
    GateVerdict.UNSTABLE: "info",
    GateVerdict.INCONCLUSIVE: "info",
}
_LONGEST_BENCHMARK, _LONGEST_MEASURE = 1024, 64


def render_code_quality(result: GateResult) -> bytes:
    """One finding per metric that did not pass; its fingerprint holds no value, so it stays one."""
    location = result.location
    findings = [
        {
            "description": f"{one.verdict.value}: {one_line(sentence(one))}",
            "check_name": f"llmprof/{one.verdict.value}",
            "fingerprint": hashlib.sha256(
                f"{result.title} {one.metric.name} {one.check.value}".encode()
            ).hexdigest()[:32],
            "severity": _SEVERITIES[one.verdict],
            "location": {
                "path": location.file if location else "llmprof",
                "lines": {"begin": location.line if location else 1},
            },
        }
        for one in result.judgements
        if one.verdict in _SEVERITIES
    ]
    return (json.dumps(findings, indent=2, ensure_ascii=False) + "\n").encode()


def render_bencher(result: GateResult) -> bytes:
    """The candidate's figures, with the interval of the comparison where there is one."""
    measures: dict[str, dict[str, float]] = {}
    for one in result.judgements:
        if one.candidate is None:
            continue
        measure = {"value": one.candidate}
        if one.ratio is not None and one.ratio.num_samples > 1:
            measure["lower_value"] = one.candidate * one.ratio.low / one.ratio.point
            measure["upper_value"] = one.candidate * one.ratio.high / one.ratio.point
        name = one.metric.name.replace(".", "-").replace("_", "-")
        measures[name[:_LONGEST_MEASURE]] = measure
    title = "/".join(one_line(result.title).split())[:_LONGEST_BENCHMARK]
    return (json.dumps({title: measures}, indent=2, ensure_ascii=False) + "\n").encode()


def render_gate_json(result: GateResult) -> bytes:
    return (result.model_dump_json(indent=2) + "\n").encode()
