"""Every kind of file where another is wanted: one line that says what it is and what to do."""

import io
import json
import sys
from pathlib import Path

import pytest

from llmprof.cli.app import execute
from llmprof.store.documents import write_document
from tests.records import a_run_record

KINDS = ("sweep", "comparison", "gate", "plan", "prediction", "report", "quality")


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLMPROF_DIR", raising=False)
    record = a_run_record(rounds=2, grouped_rounds=1)
    write_document(Path("run.json"), record)
    write_document(Path("ceilings.json"), record.ceilings)
    for kind in KINDS:
        Path(f"{kind}.json").write_text(json.dumps({"schema": f"llmprof.{kind}/1"}))
    text = Path("run.json").read_text()
    Path("newer.json").write_text(text.replace("llmprof.run/1", "llmprof.run/9", 1))
    Path("cut.json").write_text(text[:500])
    Path("empty.json").write_text("")
    Path("folder").mkdir()
    Path("own.yaml").write_text("model: m\n")


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert execute(list(words)) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert ". " in err, "no word on what to do"
    return err


WANT_A_RUN = (
    ("report",),
    ("predict",),
    ("compare", "run.json"),
    ("gate", "check"),
    ("gate", "check", "run.json", "--baseline"),
)
WRONG = (
    *((f"{kind}.json", f"{kind}.json holds llmprof.{kind}/1 (") for kind in (*KINDS, "ceilings")),
    ("newer.json", "this llmprof reads up to llmprof.run/1. Upgrade llmprof"),
    ("cut.json", "cut.json is truncated or no JSON (line 1). It was cut off"),
    ("empty.json", "empty.json is empty. It was cut off"),
)


@pytest.mark.parametrize("words", WANT_A_RUN)
def test_no_run(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    for name, problem in WRONG:
        assert problem in told(capsys, *words, name)
    if words != ("predict",):  # to which they may be a model and settings
        assert "folder is a folder, and no saved run" in told(capsys, *words, "folder")
        assert "Measure it first: llmprof run own.yaml" in told(capsys, *words, "own.yaml")


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", "--confirm", "workload.batch=2"),
        ("sweep",),
        ("inspect",),
        ("plan", "--memory", "24GB"),
        ("compare", "--cand", "workload.batch=2"),
        ("gate", "run", "--base", "own.yaml"),
        ("gate", "calibrate"),
    ],
)
def test_no_model(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert "run.json is a saved run, and no model. Show it" in told(capsys, *words, "run.json")
    assert "sweep.json is a sweep, of many runs, and no model" in told(capsys, *words, "sweep.json")
    assert "Give the model that it is about" in told(capsys, *words, "plan.json")


@pytest.mark.parametrize("name", ["run.json", "empty.json"])
def test_no_ceilings(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert name in told(capsys, "predict", "llama-3.2-1b", "--device-ceilings", name)


def test_no_settings_of_a_gate(capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is no YAML used to pass for the name of a model, and changed nothing."""
    words = ("gate", "check", "run.json", "--settings", "run.json")
    assert "--settings run.json is no settings file" in told(capsys, *words)


def test_json_that_is_neither_a_run_nor_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    Path("notes.json").write_text('{"a": 1}')
    line = told(capsys, "predict", "notes.json")
    assert "the field 'model_type' is missing. Give the config.json of a checkpoint" in line


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_run_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert execute(["report", "run.json", "--json"]) == 0
    from_a_file = capsys.readouterr().out
    piped(monkeypatch, Path("run.json").read_bytes())
    assert execute(["report", "-", "--json"]) == 0
    assert capsys.readouterr().out == from_a_file


def test_standard_input_that_holds_nothing_or_something_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    piped(monkeypatch, b"")
    assert "standard input is empty" in told(capsys, "report", "-")
    piped(monkeypatch, Path("plan.json").read_bytes())
    assert "standard input holds llmprof.plan/1 (a plan)" in told(capsys, "predict", "-")
