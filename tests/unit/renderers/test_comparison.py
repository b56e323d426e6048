import csv
import io
import json
import re

import pytest
from rich.console import Console

from llmprof.analysis.compare import compare_reports
from llmprof.errors import InputError
from llmprof.renderers.comparison_documents import check_comparison_suffix, render_comparison_file
from llmprof.renderers.comparison_text import render_comparison
from llmprof.schema.comparison import Comparison
from llmprof.schema.cost import Phase
from tests.records import a_report, a_run_record, model_phase


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    plans = [model_phase(phase, efficiency=0.6) for phase in (Phase.PREFILL, Phase.DECODE)]
    cand = a_run_record(plans, seed=2).model_copy(update={"id": "<candidate>"})
    return compare_reports([a_report()], [a_report(cand)])


def text_of(comparison: Comparison, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, no_color=True)
    with console.capture() as captured:
        render_comparison(comparison, console)
    return captured.get()


def test_the_terminal_marks_what_is_not_shown(comparison: Comparison) -> None:
    text = text_of(comparison)
    row = next(line for line in text.splitlines() if line.startswith("decode.tpot_s.p50  "))
    assert row.rstrip().endswith("~")
    assert "it takes 6 launches a side" in text
    assert "decode: 1.08 → 1.08 FLOP/byte" in text


def test_p_values_name_how_many_metrics_they_are_adjusted_for() -> None:
    plans = [model_phase(phase, efficiency=0.6) for phase in (Phase.PREFILL, Phase.DECODE)]
    base = [a_report(a_run_record(seed=seed)) for seed in range(4)]
    cand = [a_report(a_run_record(plans, seed=seed)) for seed in range(4, 8)]
    several = compare_reports(base, cand)
    text = " ".join(text_of(several, 200).split())
    assert (
        "two-sided at 5 %, adjusted for 8 metrics after Holm); for one of so many it takes 6"
        in text
    )
    markdown = render_comparison_file(several, ".md").decode()
    assert "p adjusted for 8 metrics after Holm" in markdown
    assert "p 0.23 adjusted" in markdown
    rows = csv.DictReader(io.StringIO(render_comparison_file(several, ".csv").decode()))
    tpot = next(row for row in rows if row["metric"] == "decode.tpot_s.p50")
    assert float(tpot["p_value"]) == pytest.approx(2 / 70)
    assert float(tpot["p_adjusted"]) == pytest.approx(16 / 70)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_line_is_wider_than_the_terminal(comparison: Comparison, width: int) -> None:
    assert max(len(line) for line in text_of(comparison, width).splitlines()) <= width


def test_a_forced_comparison_has_its_banner_everywhere(comparison: Comparison) -> None:
    forced = comparison.model_copy(update={"not_comparable": ("workload.batch is 1 and 4",)})
    for rendered in (
        text_of(forced),
        render_comparison_file(forced, ".md").decode(),
        render_comparison_file(forced, ".html").decode(),
    ):
        assert "FORCED, NOT COMPARABLE: workload.batch is 1 and 4" in rendered


def test_csv_has_base_units_and_the_basis(comparison: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(render_comparison_file(comparison, ".csv").decode())))
    tpot = next(row for row in rows if row["metric"] == "decode.tpot_s.p50")
    assert tpot["unit"] == "s"
    assert float(tpot["candidate"]) / float(tpot["baseline"]) == pytest.approx(float(tpot["ratio"]))
    assert (tpot["basis"], tpot["change"], tpot["p_value"]) == ("one_launch", "not_shown", "")


def test_json_reads_back(comparison: Comparison) -> None:
    data = render_comparison_file(comparison, ".json")
    assert json.loads(data)["schema"] == "llmprof.comparison/1"
    assert Comparison.model_validate_json(data) == comparison


def test_the_page_is_one_file_without_network_and_escapes_names(comparison: Comparison) -> None:
    page = render_comparison_file(comparison, ".html").decode()
    assert not re.search(r'(src|href)="(https?:)?//', page)
    assert "default-src 'none'" in page
    assert "<candidate>" not in page
    assert "&lt;candidate&gt;" in page
    assert len(page) < 400_000


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf", ".html", ".md"])
def test_the_same_comparison_gives_the_same_bytes(comparison: Comparison, suffix: str) -> None:
    assert render_comparison_file(comparison, suffix) == render_comparison_file(comparison, suffix)


def test_a_run_without_ceilings_is_compared_as_far_as_it_goes() -> None:
    bare = a_report(a_run_record(readings=False))
    comparison = compare_reports([bare], [bare])
    assert comparison.parts == ()
    assert "no phase could be placed" in render_comparison_file(comparison, ".svg").decode()
    assert "decode.tpot_s.p50" in text_of(comparison)


def test_an_unknown_suffix_is_refused() -> None:
    with pytest.raises(InputError, match=r"\.docx"):
        check_comparison_suffix(".docx")
