import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from llmprof.errors import InputError
from llmprof.schema.cost import Phase
from llmprof.schema.run import Round, RunRecord
from llmprof.schema.settings import RunConfig, WorkloadKind, WorkloadSettings
from llmprof.store.run_summaries import list_runs
from llmprof.store.runs import (
    check_runs_writable,
    find_run,
    find_run_file,
    new_run_id,
    runs_folder,
    save_run,
)
from tests.records import a_run_record, model_phase

CREATED = datetime(2026, 11, 29, 15, 45, tzinfo=UTC)


@pytest.fixture(autouse=True)
def in_a_fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMPROF_DIR", raising=False)
    monkeypatch.chdir(tmp_path)


def a_run(run_id: str, **changes: object) -> RunRecord:
    return a_run_record(rounds=2, grouped_rounds=1).model_copy(update={"id": run_id, **changes})


def save(*run_ids: str) -> None:
    for run_id in run_ids:
        save_run(a_run(run_id))


def every(rounds: Sequence[Round]) -> Sequence[Round]:
    return rounds


def refusal(reference: str) -> str:
    with pytest.raises(InputError) as caught:
        find_run(reference)
    assert caught.value.exit_code == 2
    return caught.value.line()


FIRST = "20261129T154500Z-tiny-b1-p8-1a2b3c4d"
SECOND = "20261129T154600Z-tiny-b1-p8-2a2b3c4d"
THIRD = "20261130T080000Z-tiny-b4-p8-3a2b3c4d"


@pytest.mark.parametrize(
    ("model", "slug"),
    [
        ("smollm2-135m-instruct", "smollm2-135m-instruct"),
        ("meta-llama/Llama-3.2-1B", "llama-3.2-1b"),
        ("/models/My Model (v2).gguf", "my-model-v2"),
        ("./qwen3-8b/config.json", "qwen3-8b"),
        ("folder/", "folder"),
        ("..", "model"),
        ("模型", "model"),
        ("x" * 300, "x" * 40),
    ],
)
def test_an_id_tells_when_and_what(model: str, slug: str) -> None:
    config = RunConfig(model=model, workload=WorkloadSettings(batch=4, prompt_tokens=64))
    pattern = rf"20261129T154500Z-{re.escape(slug)}-b4-p64-[0-9a-f]{{8}}"
    assert re.fullmatch(pattern, new_run_id(CREATED, config))


@pytest.mark.parametrize(
    ("work", "shape"),
    [
        (WorkloadSettings(kind=WorkloadKind.TRACE, requests=24), "trace-r24"),
        (WorkloadSettings(kind=WorkloadKind.TRACE, file="trace.jsonl"), "trace"),
    ],
)
def test_an_id_of_a_trace_names_no_batch_and_no_prompt_that_it_has_not(
    work: WorkloadSettings, shape: str
) -> None:
    """Its settings hold batch 1 and 512 tokens all the same, which nothing uses."""
    found = new_run_id(CREATED, RunConfig(model="m", workload=work))
    assert re.fullmatch(rf"20261129T154500Z-m-{shape}-[0-9a-f]{{8}}", found)


def test_ids_are_in_utc_and_differ_within_a_second() -> None:
    config = RunConfig(model="m")
    elsewhere = CREATED.astimezone(timezone(timedelta(hours=5)))
    ids = {new_run_id(elsewhere, config) for _ in range(50)}
    assert len(ids) == 50
    assert all(run_id.startswith("20261129T154500Z-") for run_id in ids)


def test_a_saved_run_is_found_by_every_kind_of_reference() -> None:
    save(FIRST, SECOND, THIRD)
    for reference, run_id in {
        "@last": THIRD,
        "@last~0": THIRD,
        "@last~2": FIRST,
        "1a2b3c4d": FIRST,
        "20261130": THIRD,
        SECOND: SECOND,
        f".llmprof/runs/{SECOND}.json": SECOND,
    }.items():
        assert find_run(reference).id == run_id
    assert find_run(FIRST) == a_run(FIRST)


def test_a_file_outside_the_folder_is_found_by_its_path(tmp_path: Path) -> None:
    save(FIRST)
    moved = tmp_path / "elsewhere" / "kept.json"
    moved.parent.mkdir()
    find_run_file("@last").rename(moved)
    assert find_run(str(moved)).id == FIRST
    assert find_run("elsewhere/kept.json").id == FIRST


def test_within_one_second_the_one_written_last_is_the_last() -> None:
    later, earlier = FIRST[:-8] + "00000000", FIRST[:-8] + "ffffffff"
    save(earlier, later)
    assert find_run("@last").id == later


def test_an_id_that_starts_another_one_is_itself() -> None:
    save("mine", "mine-too")
    assert find_run("mine").id == "mine"


def test_nothing_saved() -> None:
    line = refusal("@last")
    assert "no run '@last': .llmprof/runs holds none" in line
    assert "llmprof run MODEL" in line


def test_no_such_run_lists_the_newest() -> None:
    save(FIRST, SECOND)
    assert refusal("2027") == f"no run '2027'. The newest are: {SECOND}, {FIRST}"
    assert refusal("").startswith("no run ''")
    assert refusal("@last~2") == "@last~2: .llmprof/runs holds only 2"
    assert refusal("gone.json") == "gone.json does not exist"


def test_an_ambiguous_reference_lists_what_it_fits() -> None:
    save(FIRST, SECOND, THIRD)
    assert refusal("20261129") == f"'20261129' fits 2 runs: {SECOND}, {FIRST}. Say more"


def test_a_damaged_run_says_so() -> None:
    save(FIRST)
    file = find_run_file("@last")
    file.write_bytes(file.read_bytes()[:-100])
    assert "is truncated" in refusal("@last")


def test_unknown_keys_become_a_caveat_of_the_run() -> None:
    save(FIRST)
    file = find_run_file("@last")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"colour": "blue"}))
    assert [caveat.code for caveat in find_run("@last").caveats][-1] == "unknown-keys"


def test_a_folder_of_our_making_keeps_out_of_commits() -> None:
    check_runs_writable()
    assert Path(".llmprof/.gitignore").read_text() == "*\n"
    save(FIRST)
    assert find_run_file("@last") == Path(f".llmprof/runs/{FIRST}.json")


def test_llmprof_dir_names_another_folder_and_what_is_there_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "results"
    kept.mkdir()
    monkeypatch.setenv("LLMPROF_DIR", str(kept))
    assert save_run(a_run(FIRST)) == kept / "runs" / f"{FIRST}.json"
    assert runs_folder() == kept / "runs"
    assert not (kept / ".gitignore").exists()


def test_a_folder_that_cannot_be_made_is_found_before_measuring(tmp_path: Path) -> None:
    (tmp_path / ".llmprof").write_text("a file in the way")
    with pytest.raises(InputError, match=r"cannot make folder \.llmprof/runs: "):
        check_runs_writable()


def test_the_list_tells_what_names_a_run() -> None:
    save(SECOND, FIRST)
    first, second = list_runs(every)
    assert (first.id, second.id) == (FIRST, SECOND)
    assert first.status == "complete"
    assert (first.model, first.device, first.dtype) == ("smollm2-135m", "cpu", "bf16")
    assert (first.batch, first.prompt_tokens) == (1, 512)
    assert first.created == CREATED


def test_the_decode_step_is_the_median_of_the_rounds_medians() -> None:
    record = a_run_record((model_phase(Phase.DECODE, steps=3),), rounds=3, grouped_rounds=1)
    step_s = [[1.0, 2.0, 9.0], [4.0, 3.0, 5.0], [70.0, 80.0, 60.0]]  # medians 2, 4 and 70
    rounds = tuple(
        one.model_copy(
            update={
                "steps": tuple(
                    step.model_copy(update={"duration_s": s})
                    for step, s in zip(one.steps, seconds, strict=True)
                )
            }
        )
        for one, seconds in zip(record.rounds, step_s, strict=True)
    )
    save_run(record.model_copy(update={"rounds": rounds}))
    assert list_runs(every)[0].decode_step_s == 4.0


def test_a_run_without_decode_has_no_decode_step() -> None:
    save_run(a_run_record((model_phase(Phase.PREFILL),), rounds=2, grouped_rounds=1))
    assert list_runs(every)[0].decode_step_s is None


def test_what_cannot_be_read_is_listed_and_stops_nothing() -> None:
    save(FIRST)
    for name, text in {"b": "{", "c": "[]", "d": '{"id": 3}', "e": "null"}.items():
        Path(f".llmprof/runs/{name}.json").write_text(text)
    summaries = {summary.id: summary for summary in list_runs(every)}
    assert {key for key, value in summaries.items() if value.status == "unreadable"} == set("bcde")
    assert summaries[FIRST].status == "complete"
