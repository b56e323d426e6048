"""`llmprof compare CONFIG --base ... --cand ...`, from the command line to the documents."""

import io
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from llmprof.cli.app import execute
from llmprof.errors import DoesNotFitError
from llmprof.experiments.arm_messages import WholeRun
from llmprof.experiments.arm_process import ArmPlan
from llmprof.experiments.arm_worker import serve
from llmprof.experiments.whole_run import whole_run
from llmprof.schema.comparison import Comparison
from llmprof.store.runs import find_run

FEW = ("--threads", "1", "-q", "--set", "measure.warmup=1")
SIZES = ("--set", "workload.prompt_tokens=8", "--set", "workload.output_tokens=4")
FP32 = ("--set", "weights.dtype=fp32")


pytestmark = pytest.mark.usefixtures("known_ceilings")


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = execute(list(words))
    printed = capsys.readouterr()
    assert code == 0, printed.err
    document: dict[str, Any] = json.loads(printed.out)
    return document


def test_both_arms_are_measured_and_the_prediction_was_there_first(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = ("--base", "attention.kind=flash", "--cand", "attention.kind=standard")
    words = ("compare", tiny, "--rounds", "6", *FEW, *SIZES, *FP32, *arms)
    found = _json(capsys, *words, "--json", "-o", "c.html", "-o", "c.md")

    assert found["schema"] == "llmprof.comparison/1"
    assert found["settings"] == [
        {"key": "attention.kind", "baseline": "flash", "candidate": "standard"}
    ]
    live = found["live"]
    assert (live["arrangement"], live["num_pairs"]) == ("one_process", 6)
    assert live["confirmation"]["predicted_at"] < live["confirmation"]["measured_at"]
    assert live["outputs"]["same"] is True
    assert live["outputs"]["first_difference"] is None
    changes = {one["metric"]["name"]: one for one in found["metrics"]}
    assert changes["decode.step_s.p50"]["basis"] == "paired"
    assert changes["decode.step_s.p50"]["p_value"] >= 2 / 2**6
    assert "memory.peak_bytes" not in changes  # one process has one peak for both
    assert len(list(Path(".llmprof/predictions").glob("*.json"))) == 1
    assert len(list(Path(".llmprof/runs").glob("*.json"))) == 3
    assert find_run(found["candidate"]["run_ids"][0]).peak_memory_bytes is None
    for name in ("c.html", "c.md"):
        text = Path(name).read_text()
        assert "Base time over candidate time" in text or "predicted at" in text
        assert "A B B A in one process" in text


def test_other_tokens_are_told_by_the_first_one_and_other_work_is_stamped(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("compare", tiny, "--rounds", "2", *FEW, *SIZES, *FP32)
    assert execute([*words, "--base", "workload.batch=1", "--cand", "workload.batch=2"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "NOT LIKE FOR LIKE: workload.batch is 1 and 2" in text
    assert "tokens not compared: workload.batch differ" in text
    assert "predicted at" in text


def test_what_cannot_be_predicted_is_measured_all_the_same(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    served = [
        "workload.kind=trace",
        "batching.policy=continuous",
        "workload.requests=2",
        "workload.lengths.prompt={kind: fixed, mean: 6, high: 8}",
        "workload.lengths.output={kind: fixed, mean: 3, high: 4}",
    ]
    sets = [
        word
        for one in (*served, "measure.warmup=1", "weights.dtype=fp32")
        for word in ("--set", one)
    ]
    words = ("compare", tiny, "--threads", "1", "--rounds", "2", "-q", "--json", *sets)
    found = _json(capsys, *words, "--cand", "kv_cache.layout=paged")
    assert found["live"]["confirmation"] is None
    assert found["live"]["not_predicted"]
    assert found["live"]["outputs"]["reason"] == "served requests keep no tokens to compare"
    assert "Too few pairs (2 of at least 6)" in found["headline"]


class ArmHere:
    """In place of a worker process: the same measurement in this one, whose ceilings are given."""

    plans: ClassVar[list[ArmPlan]] = []

    def __init__(self, plan: ArmPlan) -> None:
        self.plan = plan

    def __enter__(self) -> "ArmHere":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def profile(self) -> WholeRun:
        self.plans.append(self.plan)
        return whole_run(self.plan.config)


def test_where_memory_holds_one_each_turn_has_its_own_process(
    tiny: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DoesNotFitError("tiny needs 9 GiB on cpu, but 1 GiB is available")

    monkeypatch.setattr("llmprof.experiments.paired._in_one_process", full)
    monkeypatch.setattr("llmprof.experiments.turns.ArmProcess", ArmHere)
    monkeypatch.setattr(ArmHere, "plans", [])
    words = ("compare", tiny, "--rounds", "4", *FEW, *SIZES, *FP32)
    found = _json(capsys, *words, "--cand", "attention.kind=standard", "--json")
    labels = [plan.label[0] for plan in ArmHere.plans]
    assert "".join(labels) == "bccb" * 2  # A B B A
    assert found["live"]["arrangement"] == "own_processes"
    assert found["live"]["num_pairs"] == 4
    assert found["live"]["outputs"]["same"] is True
    assert "memory.peak_bytes" in {one["metric"]["name"] for one in found["metrics"]}
    record = find_run(found["candidate"]["run_ids"][0])
    assert (record.settings.measure.rounds, len(record.rounds)) == (4, 4)
    assert Comparison.model_validate_json(json.dumps(found)).live is not None


def test_a_worker_measures_a_whole_run(tiny: str) -> None:
    settings = {
        "model": tiny,
        "weights": {"dtype": "fp32"},
        "execution": {"threads": 1},
        "workload": {"prompt_tokens": 8, "output_tokens": 4},
        "measure": {"rounds": 1, "warmup": 0, "passes": ["clean"]},
    }
    replies = io.StringIO()
    serve([json.dumps({"do": "profile", "settings": settings})], replies)
    reply = WholeRun.model_validate_json(replies.getvalue())
    assert len(reply.record.rounds) == 1
    assert reply.output_tokens is not None
    assert [len(one) for one in reply.output_tokens] == [4]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--base", "attention.kind=flash"), "changes nothing"),
        (("--cand", "measure.rounds=3"), "changes nothing"),
        (("@last", "--cand", "attention.kind=standard"), "one word too many"),
        (("--cand", "attention.kin=standard"), "--cand attention.kin=standard: unknown key"),
        (("--cand", "attention.kind=standard", "-o", "x.docx"), "ends in '.docx'"),
        (("@last", "--rounds", "3"), "saved runs are compared as they are"),
    ],
)
def test_wrong_calls_end_with_2_before_anything_is_measured(
    tiny: str, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["compare", tiny, *words]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert not list(Path(".llmprof/runs").glob("*.json"))
