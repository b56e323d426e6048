"""What the vendor states is shown as such: dashed, named, with its source."""

import io

import pytest
from rich.console import Console

from llmprof.devices.lookup import find_device
from llmprof.renderers.ceilings_text import render_ceilings
from llmprof.renderers.csv_table import render_csv
from llmprof.renderers.provenance import environment_facts
from llmprof.renderers.roofline_figure import roofline_figure
from llmprof.renderers.run_text import run_text
from llmprof.renderers.tables import points_table
from llmprof.schema.datasheet import Datasheet
from llmprof.schema.report import Report
from tests.records import a_report
from tests.unit.ceilings.factories import NOON, a_cpu, some_ceilings


def known(name: str) -> Datasheet:
    found = find_device(name)
    assert isinstance(found, Datasheet)
    return found


L4 = known("NVIDIA L4")
LAPTOP = known("NVIDIA GeForce RTX 4090 Laptop GPU")


def on(datasheet: Datasheet) -> Report:
    report = a_report()
    points = tuple(p.model_copy(update={"mfu": 0.125, "mbu": 0.61}) for p in report.points)
    return report.model_copy(update={"datasheet": datasheet, "points": points})


@pytest.mark.parametrize(
    ("datasheet", "drawn", "named"),
    [
        (L4, {"datasheet-memory", "datasheet-compute"}, "datasheet, L4: 121 TFLOP/s, 300 GB/s"),
        (LAPTOP, {"datasheet-memory"}, "datasheet, RTX 4090 Laptop: 576 GB/s (dashed)"),
        (None, set(), None),
    ],
)
def test_the_roofline_has_it_dashed_and_named(
    datasheet: Datasheet | None, drawn: set[str], named: str | None
) -> None:
    report = on(datasheet) if datasheet else a_report()
    svg = roofline_figure(report, "svg").decode()
    ids = {one for one in ("datasheet-memory", "datasheet-compute") if f'.{one}"' in svg}
    assert ids == drawn
    assert "datasheet, " in svg if named else "datasheet, " not in svg
    assert (named or "") in svg
    for one in ids:
        line = svg.split(f'.{one}"')[1].split("</g>")[0]
        assert "stroke-dasharray" in line


def test_shares_stand_in_every_form() -> None:
    report = on(L4)
    assert "MFU 12 %, MBU 61 %" in " ".join(run_text(report, 140).split())
    table = points_table(report)
    assert table.columns[-2:] == ("MFU", "MBU")
    assert table.rows[0][-2:] == ("12 %", "61 %")
    assert "mfu,mbu" in render_csv([report]).decode().splitlines()[0]
    facts = {fact.label: fact.value for fact in environment_facts(report)}
    assert "bf16 121 TFLOP/s" in facts["datasheet"]
    assert "NVIDIA L4 Tensor Core GPU datasheet, 2023" in facts["datasheet"]


def test_without_a_datasheet_there_is_a_reason_and_no_column() -> None:
    report = a_report()
    assert "MFU" not in run_text(report, 140)
    assert points_table(report).columns[-1] == "of the step"
    facts = {fact.label: fact.value for fact in environment_facts(report)}
    assert facts["datasheet"].startswith("none, so no MFU and no MBU: the datasheet table")


def test_the_ceilings_command_shows_it_apart_from_what_was_measured() -> None:
    stream = io.StringIO()
    ceilings = some_ceilings(a_cpu()).model_copy(update={"datasheet": L4})
    render_ceilings(ceilings, Console(file=stream, width=300), now=NOON)
    assert "datasheet (stated, not measured): L4: memory 300 GB/s, fp32 30.3" in stream.getvalue()
