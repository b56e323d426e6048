"""`llmprof report`: from a saved run to any format."""

import json
from pathlib import Path

import pytest

from llmprof.cli.app import execute
from llmprof.store.runs import save_run
from tests.records import a_run_record


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LLMPROF_DIR", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    record = a_run_record(rounds=3, grouped_rounds=2)
    save_run(record)
    return record.id


def test_summary_on_stdout(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["report", "@last"]) == 0
    out, err = capsys.readouterr()
    assert "DECODE 11." in out
    assert f"run {saved}" in out
    assert err == ""


def test_files_by_suffix_and_nothing_on_stdout(
    saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["report", saved, "-o", "a.md", "-o", "b.csv", "-o", "c.svg"]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "a.md").read_text(encoding="utf-8").startswith("### llmprof: smollm2-135m")
    assert (tmp_path / "b.csv").read_bytes().count(b"\r\n") == 3
    assert b"<svg" in (tmp_path / "c.svg").read_bytes()


def test_json_is_one_document(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["report", "@last", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "llmprof.report/1"
    assert document["run"]["id"] == saved


def test_several_runs_in_one_table(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["report", saved, "@last", "--format", "csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["@last", "-o", "x.docx"], "ends in '.docx'"),
        (["@last", "@last", "-o", "x.html"], "holds one run"),
        (["@last", "-o", "no/such/x.html"], "does not exist"),
        (["@last", "-o", "old.html"], "--force"),
        (["@last", "--format", "png"], "not a text format"),
        (["@last", "--json", "--format", "md"], "contradict"),
        (["nothing-like-this"], "no run"),
    ],
)
def test_bad_input_is_one_line(
    saved: str, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    Path("old.html").write_text("old", encoding="utf-8")
    assert execute(["report", *arguments]) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert (out, err.count("\n")) == ("", 1)
    assert Path("old.html").read_text(encoding="utf-8") == "old"


def test_force_overwrites(saved: str) -> None:
    Path("old.md").write_text("old", encoding="utf-8")
    assert execute(["report", saved, "-o", "old.md", "--force"]) == 0
    assert "smollm2-135m" in Path("old.md").read_text(encoding="utf-8")
