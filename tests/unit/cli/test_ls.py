import io
import json
import os
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from llmprof.cli.app import execute
from llmprof.renderers.listing_text import render_listing
from llmprof.schema.cost import Phase
from llmprof.schema.listing import Listing, RunSummary
from llmprof.store.runs import save_run
from tests.records import QUIET, a_report, a_run_record


@pytest.fixture(autouse=True)
def in_a_fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMPROF_DIR", raising=False)
    monkeypatch.chdir(tmp_path)


def test_nothing_saved(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["ls"]) == 0
    assert capsys.readouterr() == ("No saved runs in .llmprof/runs.\n", "")


def test_a_file_where_the_folder_should_be_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("afile").write_text("")
    monkeypatch.setenv("LLMPROF_DIR", "afile")
    assert execute(["ls"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "afile is a file" in err
    assert "Point LLMPROF_DIR at a folder" in err


def test_a_file_with_a_name_of_other_bytes_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    save_run(a_run_record())
    for name in (b"\xff\xfe.json", b"\x1b[2J.json"):
        (Path(".llmprof/runs") / os.fsdecode(name)).write_text("{}")
    assert execute(["ls", "--json"]) == 0
    capsys.readouterr()
    assert execute(["ls"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\\x1b[2J" in out


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    record = a_run_record(rounds=2, grouped_rounds=1)
    save_run(record)
    assert execute(["ls", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "llmprof.listing/1"
    (run,) = document["runs"]
    assert (run["id"], run["status"], run["batch"]) == (record.id, "complete", 1)
    assert run["file"] == f".llmprof/runs/{record.id}.json"


def test_the_decode_step_is_that_of_the_report_without_rejected_rounds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Five of eight rounds waited for a CPU, and took three times as long for it."""
    record = a_run_record(rounds=8)
    busy = QUIET.model_copy(update={"worst_thread_fraction": 0.6})
    spoiled = [
        one.model_copy(
            update={
                "contention": busy,
                "steps": tuple(
                    step.model_copy(update={"duration_s": 3 * step.duration_s})
                    for step in one.steps
                ),
            }
        )
        for one in record.rounds[:5]
    ]
    record = record.model_copy(update={"rounds": (*spoiled, *record.rounds[5:])})
    save_run(record)
    assert execute(["ls", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    (decode,) = [one for one in a_report(record).phases if one.phase is Phase.DECODE]
    assert run["decode_step_s"] == pytest.approx(decode.step_s.point)


def test_the_table_names_each_run_by_what_other_commands_take() -> None:
    record = a_run_record()
    summary = RunSummary(
        id=record.id,
        file="x.json",
        status="partial",
        created=record.created,
        model="evil[/red]model",
        device="cpu",
        dtype="bf16",
        batch=4,
        prompt_tokens=8192,
        output_tokens=32,
        decode_step_s=0.01234,
    )
    broken = RunSummary(id="broken", file="broken.json", status="unreadable")
    console = Console(file=io.StringIO(), width=80, color_system=None)
    now = record.created + timedelta(hours=3, minutes=59)
    render_listing(Listing(folder="f", runs=(summary, broken)), console, now=now)
    assert isinstance(console.file, io.StringIO)
    _, row, broken_row = console.file.getvalue().splitlines()
    assert row.split() == [
        "1a2b3c4d", "3", "h", "evil[/red]model", "cpu", "bf16", "4", "x", "8,192", "12.3", "ms", "partial",
    ]  # fmt: skip
    assert broken_row.split() == ["broken", *"-----", "unreadable"]


def test_a_status_column_only_where_it_says_something() -> None:
    summary = RunSummary(id="a", file="a.json", status="complete")
    console = Console(file=io.StringIO(), width=80, color_system=None)
    render_listing(Listing(folder="f", runs=(summary,)), console, now=a_run_record().created)
    assert isinstance(console.file, io.StringIO)
    assert "complete" not in console.file.getvalue()
