import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmprof.errors import InputError
from llmprof.schema.ceilings import Ceilings
from llmprof.schema.run import RunRecord
from llmprof.store.documents import read_document, write_document
from tests.records import a_run_record

Tree = dict[str, Any]


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    write_document(path, a_run_record(rounds=2, grouped_rounds=1))
    return path


def edit(path: Path, change: Callable[[Tree], object]) -> None:
    tree = json.loads(path.read_text())
    change(tree)
    path.write_text(json.dumps(tree))


def line_for(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_document(path, RunRecord)
    assert caught.value.exit_code == 2
    line = caught.value.line()
    assert "\n" not in line
    return line.replace(f"{path.parent}/", "")


def test_what_was_written_is_read_back_to_the_last_bit(run_file: Path) -> None:
    record, caveats = read_document(run_file, RunRecord)
    assert record == a_run_record(rounds=2, grouped_rounds=1)
    assert caveats == ()


def test_the_file_is_one_json_object_that_names_its_schema(run_file: Path) -> None:
    tree = json.loads(run_file.read_text())
    assert tree["schema"] == "llmprof.run/1"
    assert tree["rounds"][0]["steps"][0]["shape"]["phase"] == "prefill"


def test_keys_of_a_newer_version_are_ignored_and_named(run_file: Path) -> None:
    def add(tree: Tree) -> None:
        tree["colour"] = "blue"
        tree["environment"]["cpu"]["smell"] = 1
        for one_round in tree["rounds"]:
            one_round["steps"][0]["mood"] = "good"
        # Settings forbid unknown keys where a user wrote them; here nobody can mend them.
        tree["settings"]["workload"]["patience"] = 3

    edit(run_file, add)
    record, caveats = read_document(run_file, RunRecord)
    assert record == a_run_record(rounds=2, grouped_rounds=1)
    (caveat,) = caveats
    assert caveat.code == "unknown-keys"
    for key in (
        "colour",
        "environment.cpu.smell",
        "rounds[].steps[].mood",
        "settings.workload.patience",
    ):
        assert caveat.message.count(key) == 1


def test_a_key_that_is_gone_and_held_nothing_is_not_missed(run_file: Path) -> None:
    edit(run_file, lambda tree: tree["environment"]["cpu"].update(smell=None))
    _, caveats = read_document(run_file, RunRecord)
    assert caveats == ()


def test_free_keys_are_not_unknown(run_file: Path) -> None:
    edit(run_file, lambda tree: tree["environment"]["versions"].update(mylib="1.0"))
    record, caveats = read_document(run_file, RunRecord)
    assert record.environment.versions["mylib"] == "1.0"
    assert caveats == ()


@pytest.mark.parametrize(
    ("schema", "line"),
    [
        ("llmprof.run/2", "run.json holds llmprof.run/2, and this llmprof reads up to llmprof.run/1. Upgrade llmprof"),
        ("llmprof.run/0", "run.json holds llmprof.run/0, which this llmprof no longer reads. Read it with the version that wrote it, or measure again"),
        ("llmprof.ceilings/1", "run.json holds llmprof.ceilings/1 (the ceilings of a device), expected llmprof.run/1. Predict with them: llmprof predict MODEL --device-ceilings FILE"),
        ("llmprof.report/1", "run.json holds llmprof.report/1 (the report of a run), expected llmprof.run/1. Give the run that it was made from: its id, or the run file in .llmprof/runs"),
        ("run", "run.json is no llmprof document: its key 'schema' should be 'llmprof.run/1'. Saved runs lie in .llmprof/runs, and 'llmprof ls' lists them"),
        (7, "run.json is no llmprof document: its key 'schema' should be 'llmprof.run/1'. Saved runs lie in .llmprof/runs, and 'llmprof ls' lists them"),
        (None, "run.json is no llmprof document: its key 'schema' should be 'llmprof.run/1'. Saved runs lie in .llmprof/runs, and 'llmprof ls' lists them"),
    ],
)  # fmt: skip
def test_another_schema_is_refused(run_file: Path, schema: object, line: str) -> None:
    edit(run_file, lambda tree: tree.update(schema=schema))
    assert line_for(run_file) == line


def test_every_truncation_is_found(run_file: Path) -> None:
    data = run_file.read_bytes()
    for size in (1, 100, len(data) // 2, len(data) - 2):
        run_file.write_bytes(data[:size])
        assert "is truncated or no JSON" in line_for(run_file)
    run_file.write_bytes(b"")
    assert line_for(run_file).startswith("run.json is empty. It was cut off")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"[1, 2]", "is no llmprof document: expected a JSON object"),
        (b'{"schema": NaN}', "is damaged: NaN is not a number"),
        (b'{"schema": -Infinity}', "is damaged: -Infinity is not a number"),
        (b"\xff\xfe\x00", "is damaged"),
        (b"[" * 200_000, "is damaged"),
        (b'{"a": ' + b"1" * 5000 + b"}", "is damaged"),
    ],
)
def test_bytes_that_are_no_document(run_file: Path, data: bytes, problem: str) -> None:
    run_file.write_bytes(data)
    assert problem in line_for(run_file)


def test_a_field_that_is_wrong_is_named(run_file: Path) -> None:
    def spoil(tree: Tree) -> None:
        tree["rounds"][1]["steps"][0]["duration_s"] = -1.0

    edit(run_file, spoil)
    assert line_for(run_file) == (
        "run.json is damaged, or of a newer llmprof: rounds[1].steps[0].duration_s: "
        "Input should be greater than or equal to 0. Upgrade llmprof, or write the file again"
    )


@pytest.mark.parametrize("value", [True, "0.5", None])
def test_a_number_is_not_made_from_something_else(run_file: Path, value: object) -> None:
    def spoil(tree: Tree) -> None:
        tree["rounds"][0]["steps"][0]["duration_s"] = value

    edit(run_file, spoil)
    assert "rounds[0].steps[0].duration_s" in line_for(run_file)


def test_a_missing_field_is_named(run_file: Path) -> None:
    edit(run_file, lambda tree: tree.pop("rounds"))
    assert "rounds: Field required" in line_for(run_file)


def test_another_kind_of_document_is_named(run_file: Path) -> None:
    with pytest.raises(
        InputError, match=r"holds llmprof\.run/1 .a saved run., expected llmprof\.ceilings/1"
    ):
        read_document(run_file, Ceilings)


def test_no_file(tmp_path: Path) -> None:
    assert line_for(tmp_path / "absent.json") == "absent.json does not exist"
    assert line_for(tmp_path).endswith("is a folder, not a file. Name a file in it")


def test_control_characters_are_spelled_out(tmp_path: Path) -> None:
    name = "\x1b[2J \x08 \x7f \x9b \\b \\\x1b \t é"
    spelled = "\\u001b[2J \\b \\u007f \\u009b \\b \\\\u001b \t é"
    record = a_run_record()
    settings = record.settings.model_copy(update={"model": name})
    for escaped in (True, False):
        tree = record.model_copy(update={"settings": settings}).model_dump(
            mode="json", by_alias=True
        )
        (tmp_path / "run.json").write_text(json.dumps(tree, ensure_ascii=escaped), encoding="utf-8")
        found, caveats = read_document(tmp_path / "run.json", RunRecord)
        assert found.settings.model == spelled
        assert caveats == ()
