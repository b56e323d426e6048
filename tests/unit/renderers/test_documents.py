"""JSON, CSV and Markdown, and the table of formats."""

import csv
import io
import json
import re
from collections.abc import Callable

import pytest

from llmprof.errors import InputError
from llmprof.renderers.base import RENDERERS, check_suffix, render, render_all
from llmprof.renderers.csv_table import render_csv
from llmprof.renderers.markdown_table import render_markdown
from llmprof.schema.report import Report
from tests.unit.renderers import degenerate
from tests.unit.renderers.report_factory import a_report


def rows(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode(), newline="")))


def test_json_is_the_report() -> None:
    data = render(a_report(), ".json")
    assert Report.model_validate_json(data) == a_report()
    assert json.loads(data)["schema"] == "llmprof.report/1"


def test_csv_has_a_row_per_phase_in_base_units() -> None:
    prefill, decode = rows(render(a_report(batch=4), ".csv"))
    assert (prefill["phase"], decode["phase"]) == ("prefill", "decode")
    assert float(decode["step_s"]) == pytest.approx(0.0156)  # 14.09 ms of ops + 1.51 ms of host
    assert float(decode["new_tokens_per_s"]) == pytest.approx(4 / 0.0156)
    assert float(decode["memory_weights_s"]) == pytest.approx(269.0e6 / 28e9, rel=1e-3)
    assert float(decode["read_ceiling_bytes_per_s"]) == 28e9
    assert decode["limit"] == "memory"
    assert decode["random_weights"] == "true"


def test_csv_leaves_out_what_was_not_measured() -> None:
    decode = rows(render(degenerate.no_roof(), ".csv"))[1]
    assert decode["step_s"]
    assert decode["loss_s"] == decode["roof_fraction"] == decode["read_ceiling_bytes_per_s"] == ""
    assert decode["gaps_s"] == ""


def test_csv_holds_several_runs_under_one_header() -> None:
    both = rows(render_all((a_report(), degenerate.no_roof()), ".csv"))
    assert [row["phase"] for row in both] == ["prefill", "decode"] * 2


def test_csv_name_cannot_become_a_formula() -> None:
    row = rows(render_csv([degenerate.named('=HYPERLINK("x")')]))[0]
    assert row["model"] == '\'=HYPERLINK("x")'


def test_markdown_tables_are_even_whatever_the_names() -> None:
    text = render_markdown([degenerate.hostile()]).decode()
    assert "<script" not in re.sub(r"`[^`\n]*`", "", text)  # in a code span it is only text
    tables = [line for line in text.splitlines() if line.startswith("| ")]
    assert tables
    cells = [len(line.replace("\\|", "").split("|")) for line in tables[:4]]
    assert len(set(cells)) == 1


def test_markdown_says_both_answers_and_every_caveat() -> None:
    text = render_markdown([a_report()]).decode()
    assert "- **decode: memory side, unsaturated.** " in text
    assert "| decode | 15.6 ms \\[15.1, 16.1\\] | 64.1 output tok/s |" in text
    assert text.count("*Caveat.*") == 3
    assert "`llmprof run smollm2-135m-instruct`" in text


@pytest.mark.parametrize("make", degenerate.FACTORIES, ids=degenerate.NAMES)
@pytest.mark.parametrize("suffix", [".json", ".csv", ".md"])
def test_every_report_becomes_a_document(make: Callable[[], Report], suffix: str) -> None:
    report = make()
    assert render(report, suffix) == render(report, suffix)


def test_unknown_suffix_names_the_known_ones() -> None:
    for suffix in (".docx", "", ".htm"):
        with pytest.raises(InputError) as caught:
            check_suffix(suffix)
        assert all(known in caught.value.line() for known in RENDERERS)
    check_suffix(".HTML")


def test_one_run_per_page() -> None:
    with pytest.raises(InputError, match="holds one run, and 2 were named"):
        render_all((a_report(), a_report()), ".html")
