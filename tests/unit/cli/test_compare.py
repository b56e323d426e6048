"""`llmprof compare` on saved runs, by every way to name them."""

import json
from pathlib import Path

import pytest

from llmprof.cli.app import execute
from llmprof.store.runs import save_run
from tests.records import a_run_record


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("LLMPROF_DIR", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    ids = []
    for index in range(2):
        record = a_run_record(rounds=6, seed=index)
        run_id = f"20261129T15450{index}Z-smollm2-135m-b1-p512-1a2b3c4{index}"
        save_run(record.model_copy(update={"id": run_id}))
        ids.append(run_id)
    other = a_run_record(rounds=6)
    workload = other.settings.workload.model_copy(update={"batch": 4})
    settings = other.settings.model_copy(update={"workload": workload})
    run_id = "20261129T154500Z-other-b4-p512-1a2b3c49"
    save_run(other.model_copy(update={"settings": settings, "id": run_id}))
    return [*ids, run_id]


def test_two_runs_on_stdout(saved: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["compare", saved[0], "1a2b3c41"]) == 0
    out, err = capsys.readouterr()
    assert saved[0] in out
    assert saved[1] in out
    assert err == ""


def test_json_is_one_document(saved: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["compare", saved[0], saved[1], "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["candidate"]["run_ids"] == [saved[1]]


def test_files_by_suffix(saved: list[str], tmp_path: Path) -> None:
    assert execute(["compare", saved[0], saved[1], "-o", "a.html", "-o", "b.svg"]) == 0
    assert b"<svg" in (tmp_path / "b.svg").read_bytes()


def test_several_launches_a_side(saved: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    side = ",".join([saved[0]] * 4)
    assert execute(["compare", side, side, "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert metrics[0]["basis"] == "launches"


def test_other_work_ends_with_4(saved: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["compare", saved[0], saved[2]]) == 4
    assert "workload.batch is 1 and 4" in capsys.readouterr().err
    assert execute(["compare", saved[0], saved[2], "--force"]) == 0
    assert "NOT COMPARABLE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing", "@last"], "no run 'nothing'"),
        ([",", "@last"], "a side of the comparison is empty"),
        (["@last", "@last", "-o", "x.docx"], "ends in '.docx'"),
        (["@last"], "Missing argument"),
    ],
)
def test_bad_input_ends_with_2(
    saved: list[str], arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["compare", *arguments]) == 2
    assert said in capsys.readouterr().err
