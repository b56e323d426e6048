"""`llmprof report`: from a saved run to any format."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


DAMAGES: list[Callable[[dict[str, Any]], object]] = [
    lambda tree: [step.update(device_s=1e308) for step in steps(tree)],
    lambda tree: [one[side].update(read_bytes_per_s=5e-324) for one, side in sides(tree)],
    lambda tree: [one[side].update(matmul_flops_per_s=1e308) for one, side in sides(tree)],
    lambda tree: tree["grouped"][0]["steps"][0]["groups"][0].update(calls=10**400),
]
"""Each fits the schema, and stands for a number that no measurement gives."""


def steps(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for one in tree["rounds"] for step in one["steps"]]


def sides(tree: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    return [(one, side) for one in tree["rounds"] for side in ("before", "after")]


@pytest.mark.parametrize("damage", DAMAGES)
def test_impossible_numbers_are_one_line(
    damage: Callable[[dict[str, Any]], object],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tree = json.loads(a_run_record(rounds=8, grouped_rounds=2).model_dump_json(by_alias=True))
    damage(tree)
    (tmp_path / "run.json").write_text(json.dumps(tree))
    assert execute(["report", str(tmp_path / "run.json")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.match(r"llmprof: error: the run file .*run\.json is damaged: ", err)
    assert err.count("\n") == 1
