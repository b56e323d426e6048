"""What CI reads of a gate: formats by their published rules, checked without the services."""

import io
import json
import re
from datetime import UTC, datetime
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest
from rich.console import Console

from llmprof.analysis.metrics import metric_named
from llmprof.errors import CapabilityError
from llmprof.renderers.ci_json import render_bencher, render_code_quality
from llmprof.renderers.gate_documents import RENDERERS, render_gate_file
from llmprof.renderers.gate_text import render_noise
from llmprof.renderers.github import (
    MAX_SUMMARY_BYTES,
    render_annotations,
    render_benchmark,
    render_summary,
)
from llmprof.renderers.junit import render_junit, render_junit_error
from llmprof.schema.gate_result import (
    Check,
    GateArm,
    GateResult,
    GateVerdict,
    Judgement,
    SettingsLocation,
)
from llmprof.schema.measurement import Estimate
from llmprof.schema.metric import Better
from llmprof.schema.noise import MetricNoise, NoiseFloor
from llmprof.schema.run import Tool

ODD = "a|b <c>, 50 %: d\x1b[2J"
"""A name that means something to Markdown, HTML, a workflow command and a terminal."""


def judgement(name: str, verdict: GateVerdict, **changes: object) -> Judgement:
    judged = Judgement(
        metric=metric_named(name),
        check=Check.PAIRED,
        verdict=verdict,
        tolerance=0.03,
        baseline=0.007412,
        candidate=0.007866,
        ratio=Estimate(point=1.061, low=1.052, high=1.070, confidence=0.95, num_samples=24),
        p_value=0.0002,
        minimum_detectable=0.009,
        reason="a reason",
    )
    return judged.model_copy(update=changes)


def a_result(*judgements: Judgement, **changes: object) -> GateResult:
    arm = GateArm(
        label=ODD,
        model="m",
        versions={"torch": "2.13.0"},
        fingerprint="0123",
        output_sha256=None,
        compute_dtype="bf16",
        weight_bytes=1,
    )
    result = GateResult(
        command="run",
        created=datetime(2026, 11, 29, 14, 0, tzinfo=UTC),
        tool=Tool(version="0.1.0", argv=("llmprof",)),
        title=f"{ODD} b1 p512 o32",
        device="Example CPU",
        baseline=arm,
        candidate=arm,
        verdict=GateVerdict.FAIL,
        exit_code=1,
        judgements=judgements,
        num_launches=4,
        elapsed_s=184.2,
        location=SettingsLocation(file="gate, 1.yaml", line=14),
    )
    return result.model_copy(update=changes)


FOUR = (
    judgement("decode.tpot_s.p50", GateVerdict.FAIL),
    judgement("prefill.ttft_s.p50", GateVerdict.INCONCLUSIVE, pairs_needed=31),
    judgement("prefill.step_s.p50", GateVerdict.UNSTABLE),
    judgement("decode.step_s.p50", GateVerdict.PASS, improved=True),
)
COUNTS = ("tests", "failures", "errors", "skipped")
JUNIT: dict[str, tuple[set[str], set[str], tuple[str, ...]]] = {
    "testsuites": ({*COUNTS}, {"name", "time"}, ("testsuite",)),
    "testsuite": ({"name", *COUNTS, "time"}, {"timestamp"}, ("properties", "testcase")),
    "properties": (set(), set(), ("property",)),
    "property": ({"name", "value"}, set(), ()),
    "testcase": ({"classname", "name", "time"}, set(), ("skipped", "error", "failure")),
    "failure": ({"type"}, {"message"}, ()),
    "error": ({"type"}, {"message"}, ()),
    "skipped": (set(), {"message"}, ()),
}
"""Element -> attributes that it must have, those that it may have, and its children in order: what the
schemas of Jenkins' xunit plugin and of Maven's surefire both accept."""
_NUMBERS = {**dict.fromkeys(COUNTS, r"\d+"), "time": r"\d+(\.\d+)?"}
_TIMESTAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
"""Without a zone: the schema's type is ISO 8601 of the plain form."""


def check_junit(element: Element) -> None:
    required, optional, children = JUNIT[element.tag]
    assert required <= set(element.attrib) <= required | optional
    for name, pattern in (*_NUMBERS.items(), ("timestamp", _TIMESTAMP)):
        assert re.fullmatch(pattern, element.get(name, "")) or name not in element.attrib
    places = [children.index(child.tag) for child in element]
    assert places == sorted(places)
    if element.tag == "testcase":
        assert len(places) <= 1  # a case ends in one way
    for child in element:
        check_junit(child)
    if element.tag == "testsuite":
        check_counts(element)


def check_counts(suite: Element) -> None:
    """The totals are those of the cases that follow."""
    cases = list(suite.iter("testcase"))
    tags = [child.tag for case in cases for child in case]
    assert suite.get("tests") == str(len(cases))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert suite.get(name) == str(tags.count(tag))


def test_junit_keeps_to_the_dialect_and_its_counts_are_right() -> None:
    root = fromstring(render_junit(a_result(*FOUR)))
    check_junit(root)
    (suite,) = root
    for element in (root, suite):
        counts = [element.get(name) for name in ("tests", "failures", "errors", "skipped")]
        assert counts == ["4", "1", "1", "1"]
    cases = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert cases == {
        "decode.tpot_s.p50": ["failure"],
        "prefill.ttft_s.p50": ["skipped"],
        "prefill.step_s.p50": ["error"],
        "decode.step_s.p50": [],
    }
    failure = suite.find(".//failure")
    assert failure is not None
    assert failure.get("message") == "decode.tpot_s.p50 +6.1 % [+5.2, +7.0], allowed 3.0 %"
    assert failure.text == "baseline 7.41 ms, candidate 7.87 ms; a reason"
    assert all(
        re.fullmatch(r"[A-Za-z0-9_.-]+", case.get("classname") or "")
        for case in suite.iter("testcase")
    )


def test_a_gate_without_a_result_is_one_error() -> None:
    root = fromstring(render_junit_error(CapabilityError("no \x1b kernel", remedy="Install it")))
    check_junit(root)
    (error,) = root.iter("error")
    assert (error.get("type"), error.get("message")) == (
        "CapabilityError",
        "no   kernel. Install it",
    )


def test_annotations_are_aggregated_and_escaped() -> None:
    more = judgement("decode.step_s.p50", GateVerdict.FAIL)
    lines = render_annotations(a_result(*FOUR, more)).splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["::error", "::warning", "::notice"]
    place = "file=gate%2C 1.yaml,line=14,title=llmprof gate%3A regression"
    assert lines[0] == (
        f"::error {place}::decode.tpot_s.p50 +6.1 %25 [+5.2, +7.0], allowed 3.0 %25"
        "%0Adecode.step_s.p50 +6.1 %25 [+5.2, +7.0], allowed 3.0 %25"
    )
    assert lines[1].count("%0A") == 1


def test_no_annotation_where_all_is_well() -> None:
    assert render_annotations(a_result(judgement("decode.step_s.p50", GateVerdict.PASS))) == ""


def test_the_summary_escapes_names_and_folds_the_reasons() -> None:
    text = render_summary(a_result(*FOUR)).decode()
    assert text.startswith("### llmprof gate: FAIL\n")
    assert "<c>" not in text.replace("`", "\n").splitlines()[0]
    assert "a\\|b &lt;c>" in text
    assert "\x1b" not in text
    assert "<details><summary>What each verdict rests on" in text
    rows = [line for line in text.splitlines() if line.startswith("| decode")]
    assert rows[0].endswith("| FAIL |")


def test_a_long_summary_stays_below_what_github_takes() -> None:
    many = [judgement("decode.step_s.p50", GateVerdict.PASS, reason="x" * 300)] * 250
    assert len(render_summary(a_result(*many))) < MAX_SUMMARY_BYTES


def test_github_action_benchmark_has_a_file_per_direction() -> None:
    rate = judgement("decode.tokens_per_s.p50", GateVerdict.PASS, candidate=127.0)
    result = a_result(*FOUR, rate)
    smaller = json.loads(render_benchmark(result, Better.LOWER))
    bigger = json.loads(render_benchmark(result, Better.HIGHER))
    assert [entry["unit"] for entry in bigger] == ["tok/s"]
    for entry in [*smaller, *bigger]:
        assert set(entry) <= {"name", "unit", "value", "range", "extra"}
        assert isinstance(entry["value"], float)
        assert isinstance(entry["name"], str)
    assert smaller[0]["unit"] == "ms"
    assert smaller[0]["value"] == pytest.approx(7.866)
    assert smaller[0]["range"] == "± 0.8%"  # (1.070 - 1.052) / 2 / 1.061


def test_bencher_metric_format() -> None:
    document: dict[str, Any] = json.loads(render_bencher(a_result(*FOUR)))
    ((name, measures),) = document.items()
    assert len(name) <= 1024
    for measure, metric in measures.items():
        assert re.fullmatch(r"[a-z0-9-]{1,64}", measure)
        assert set(metric) <= {"value", "lower_value", "upper_value"}
        assert metric["lower_value"] <= metric["value"] <= metric["upper_value"]
    assert measures["decode-tpot-s-p50"]["value"] == 0.007866


def test_code_quality_fingerprints_hold_no_value() -> None:
    findings = json.loads(render_code_quality(a_result(*FOUR)))
    assert [one["severity"] for one in findings] == ["major", "info", "info"]
    for one in findings:
        assert set(one) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert re.fullmatch(r"[0-9a-f]{32}", one["fingerprint"])
        assert one["location"] == {"path": "gate, 1.yaml", "lines": {"begin": 14}}
    assert len({one["fingerprint"] for one in findings}) == 3
    slower = judgement("decode.tpot_s.p50", GateVerdict.FAIL, candidate=1.0)
    again = json.loads(render_code_quality(a_result(slower)))
    assert again[0]["fingerprint"] == findings[0]["fingerprint"]


@pytest.mark.parametrize("suffix", list(RENDERERS))
def test_every_format_is_the_same_each_time(suffix: str) -> None:
    result = a_result(*FOUR)
    assert render_gate_file(result, suffix) == render_gate_file(result, suffix)


def test_the_page_escapes_and_asks_nobody() -> None:
    page = render_gate_file(a_result(*FOUR), ".html").decode()
    assert "<c>" not in page
    assert "default-src 'none'" in page
    assert not re.search(r'(src|href)="(https?:)?//', page)


def test_json_reads_back() -> None:
    result = a_result(*FOUR)
    assert GateResult.model_validate_json(render_gate_file(result, ".json")) == result


@pytest.mark.parametrize("suffix", RENDERERS)
def test_the_same_gate_gives_the_same_bytes(suffix: str) -> None:
    one, other = (
        a_result(
            judgement("decode.tpot_s.p50", GateVerdict.FAIL),
            judgement("weights.bytes", GateVerdict.PASS),
        )
        for _ in range(2)
    )
    assert render_gate_file(one, suffix) == render_gate_file(other, suffix)


def test_a_calibration_shows_what_its_launches_say() -> None:
    noise = MetricNoise(
        name="decode.tpot_s.p50",
        pair_spread=0.011,
        num_pairs=24,
        launch_spread=0.02,
        num_launches=8,
        paired_floor=0.062,
        launch_floor=0.04,
        pair_launch_spread=0.03,
        num_pair_launches=4,
    )
    floor = NoiseFloor(
        created=datetime(2026, 11, 29, tzinfo=UTC),
        environment_fingerprint="0123",
        workload_key="4567",
        metrics=(noise,),
    )
    console = Console(width=120, file=io.StringIO(), color_system=None)
    render_noise(floor, console)
    assert isinstance(console.file, io.StringIO)
    row = console.file.getvalue().splitlines()[-1]
    assert re.split(r" {2,}", row.strip())[1:] == ["24", "1.1 %", "4", "3.0 %", "6.2 %", "8.0 %"]
