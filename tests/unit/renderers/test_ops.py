"""The ops of a step: terminal, CSV, Markdown, page, and the trace that Perfetto opens."""

import csv
import io
import json
from typing import Any

import pytest

from llmprof.errors import InputError
from llmprof.renderers.base import check_suffix, render, suffix_of
from llmprof.renderers.ops_text import ops_text
from llmprof.schema.cost import OpGroup
from llmprof.schema.report import Report
from llmprof.schema.run import DeviceTelemetry, KvUse
from llmprof.schema.trace import TracedOp
from tests.records import a_report, a_run_record
from tests.traces import ROUNDS, traced

OPS = (
    (TracedOp(op="aten.<script>", group=OpGroup.EMBEDDING, multiplies=False), 0.1e-3),
    (TracedOp(op="llmprof.matvec", group=OpGroup.LM_HEAD, multiplies=True), 4e-3),
    (TracedOp(op="aten.arange", group=OpGroup.OTHER, multiplies=False), 0.01e-3),
)


@pytest.fixture(scope="module")
def report() -> Report:
    record = a_run_record()
    kv = KvUse(reserved_bytes=4096, used_bytes=1024, blocks_held=1, blocks_total=1)
    rounds = tuple(
        one.model_copy(update={"steps": tuple(s.model_copy(update={"kv": kv}) for s in one.steps)})
        for one in record.rounds
    )
    return a_report(traced(record.model_copy(update={"rounds": rounds}), OPS))


@pytest.fixture(scope="module")
def events(report: Report) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(render(report, ".trace.json"))["traceEvents"]
    return found


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_terminal_shows_the_largest_loss_first_and_fits(report: Report, width: int) -> None:
    lines = ops_text(report, width).splitlines()
    assert max(map(len, lines)) <= width
    head, embedding = (
        next(i for i, line in enumerate(lines) if name in line)
        for name in ("LM head", "embedding:")
    )
    assert head < embedding
    assert any("B/s" in line for line in lines) is (width == 140)


def test_a_csv_of_ops_is_in_base_units(report: Report) -> None:
    rows = list(csv.DictReader(io.StringIO(render(report, ".ops.csv").decode())))
    head = next(row for row in rows if row["op"] == "llmprof.matvec")
    assert (head["phase"], head["group"]) == ("prefill", "lm_head")
    assert float(head["time_s"]) == pytest.approx(4e-3)
    assert float(head["loss_s"]) == pytest.approx(4e-3 - float(head["roof_s"]))
    assert next(row for row in rows if row["op"] == "aten.arange")["achieved_bytes_per_s"] == ""


def test_page_and_markdown_have_the_table_with_hostile_names_escaped(report: Report) -> None:
    page, text = render(report, ".html").decode(), render(report, ".md").decode()
    assert '<h2 id="ops">' in page
    assert "aten.<script>" not in page
    assert "aten.<script>" not in text
    assert "llmprof.matvec" in page
    assert "Ops of prefill" in text
    assert '"timelines"' not in page  # the run file has it


def test_a_report_without_a_tracing_pass_shows_none() -> None:
    plain = a_report()
    assert ops_text(plain) == ""
    assert '<h2 id="ops">' not in render(plain, ".html").decode()
    with pytest.raises(InputError, match="not traced"):
        render(plain, ".ops.csv")


def test_formats_are_told_by_the_longest_end_of_a_name() -> None:
    names = ("a.trace.json", "a.json", "A.OPS.CSV", "b.csv", "trace.txt")
    found = [suffix_of(name) for name in names]
    assert found == [".trace.json", ".json", ".ops.csv", ".csv", ".txt"]
    check_suffix(".trace.json")
    with pytest.raises(InputError, match="one run"):
        check_suffix(".trace.json", num_runs=2)


def test_every_event_has_what_the_format_asks_for(events: list[dict[str, Any]]) -> None:
    for event in events:
        assert event["ph"] in "XCM"
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
    named = {e["pid"] for e in events if e["name"] == "process_name"}
    assert {e["pid"] for e in events} == named


def test_spans_of_a_track_nest(events: list[dict[str, Any]]) -> None:
    """Perfetto draws what overlaps without nesting as a broken stack."""
    tracks: dict[tuple[int, int], list[float]] = {}
    for event in events:
        if event["ph"] != "X":
            continue
        open_ends = tracks.setdefault((event["pid"], event["tid"]), [])
        while open_ends and open_ends[-1] <= event["ts"] + 1e-3:
            open_ends.pop()
        end = event["ts"] + event["dur"]
        assert not open_ends or end <= open_ends[-1] + 2e-3
        open_ends.append(end)


def test_phases_hold_steps_and_traced_steps_hold_ops(
    events: list[dict[str, Any]], report: Report
) -> None:
    def named(process: str) -> list[dict[str, Any]]:
        pid = next(e["pid"] for e in events if e["args"].get("name") == process)
        return [e for e in events if e["pid"] == pid and e["ph"] == "X"]

    clean, tracing = named("clean pass"), named("tracing pass")
    assert [e["name"] for e in clean if e["cat"] == "phase"] == ["prefill", "decode"] * 8
    assert sum(e["cat"] == "step" for e in clean) == sum(len(r.steps) for r in report.run.rounds)
    ops = [e for e in tracing if e["cat"] not in ("phase", "step")]
    assert len(ops) == ROUNDS * len(OPS)
    step = next(e for e in tracing if e["cat"] == "step")
    assert ops[0]["ts"] == step["ts"]
    assert ops[1]["dur"] == pytest.approx(4000.0)


def test_time_never_runs_backwards_within_a_process(events: list[dict[str, Any]]) -> None:
    last: dict[int, float] = {}
    for event in events:
        if event["ph"] == "M":
            continue
        assert event["ts"] >= last.get(event["pid"], 0.0)
        last[event["pid"]] = event["ts"]


def test_clocks_power_and_memory_of_a_device_are_counters(report: Report) -> None:
    telemetry = DeviceTelemetry(
        sm_clock_hz=1.7e9, power_w=350.0, memory_used_bytes=9_000, temperature_celsius=41.0
    )
    rounds = tuple(one.model_copy(update={"telemetry": telemetry}) for one in report.run.rounds)
    run = report.run.model_copy(update={"rounds": rounds})
    found = json.loads(render(report.model_copy(update={"run": run}), ".trace.json"))
    counters = {
        e["name"]: e["args"]["value"]
        for e in found["traceEvents"]
        if e["ph"] == "C" and "value" in e["args"]
    }
    assert counters["SM clock (Hz)"] == 1.7e9
    assert counters["power (W)"] == 350.0
    assert counters["device memory used (bytes)"] == 9_000
    assert "memory clock (Hz)" not in counters


def test_sensors_ceilings_and_the_cache_are_counters(events: list[dict[str, Any]]) -> None:
    counters = {e["name"]: e["args"] for e in events if e["ph"] == "C"}
    assert counters["KV cache (bytes)"] == {"used": 1024, "wasted": 3072}
    assert counters["read ceiling (bytes/s)"] == {"read": 30e9}
    assert "dependent additions per CPU-second (Hz)" in counters
    assert "power (W)" not in counters  # no sensor: no zero
