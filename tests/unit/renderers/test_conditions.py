"""Clocks and power as they were recorded, and the reason where they were not."""

from xml.etree import ElementTree

from llmprof.analysis.report import build_report
from llmprof.renderers.conditions import conditions, conditions_table
from llmprof.renderers.conditions_figure import conditions_figure, drawn_panels
from llmprof.renderers.html_page import render_html
from llmprof.schema.run import Contention, RunRecord
from tests.records import a_run_record
from tests.unit.renderers.richer_runs import NO_COUNTER, on_a_gpu


def rows(record: RunRecord) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in conditions_table(record).rows}


def test_sensors_of_a_gpu_are_told_with_their_range() -> None:
    found = rows(on_a_gpu())
    assert found["SM clock"][:4] == ("3", "1.92 GHz", "1.95 GHz", "1.98 GHz")
    assert found["power"][:4] == ("3", "500 W", "510 W", "520 W")
    assert found["held back: power"][:4] == ("3", "25 %", "25 %", "25 %")
    assert set(drawn_panels(conditions(on_a_gpu()))) >= {"clock", "power"}


def test_what_is_absent_says_why() -> None:
    found = rows(on_a_gpu())
    assert found["DRAM activity"] == ("-", "-", "-", "-", f"none: {NO_COUNTER}")
    assert found["temperature"][-1] == "none: no sensor was read"
    assert found["clock canary"][-1] == "none: read on CPUs only"
    on_cpu = rows(a_run_record(rounds=2))
    assert on_cpu["clock, power, temperature"][-1] == "NVML sees GPUs only"
    assert "SM clock" not in on_cpu


def blind(rounds: int) -> RunRecord:
    """A system that tells nothing."""
    record = a_run_record(rounds=rounds)
    untold = Contention.model_validate(dict.fromkeys(Contention.model_fields))
    quiet = tuple(one.model_copy(update={"contention": untold}) for one in record.rounds)
    return record.model_copy(update={"rounds": quiet})


def test_a_system_that_tells_nothing_has_a_table_and_no_figure() -> None:
    assert not drawn_panels(conditions(blind(2)))
    page = render_html(build_report(blind(2))).decode()
    assert "none: the system does not tell" in page
    assert 'id="machine-title"' not in page


def test_the_figure_is_deterministic_and_starts_at_zero() -> None:
    found = conditions(on_a_gpu())
    drawing = conditions_figure(found, "svg")
    assert drawing == conditions_figure(found, "svg")
    words = [text.text for text in ElementTree.fromstring(drawing).iter() if text.text]
    assert "0 Hz" in words
    assert "0 W" in words
