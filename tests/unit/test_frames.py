"""Saved runs as pandas frames."""

import subprocess
import sys
from pathlib import Path

import pytest

import llmprof
from llmprof.errors import InputError
from llmprof.frames import RunFrames
from llmprof.schema.cost import OpGroup
from llmprof.schema.run import RequestSample
from llmprof.schema.trace import TracedOp
from llmprof.store.documents import write_document
from tests.records import a_run_record
from tests.traces import traced

OPS = ((TracedOp(op="llmprof.matvec", group=OpGroup.LM_HEAD, multiplies=True), 4e-3),)
REQUEST = RequestSample(
    index=3,
    arrival_s=0.5,
    prompt_tokens=7,
    output_tokens=2,
    queue_s=None,
    first_step=None,
    token_steps=(),
    outcome="rejected",
    reason="too long",
)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> RunFrames:
    record = a_run_record()
    first = record.rounds[0].model_copy(update={"requests": (REQUEST,)})
    record = traced(record.model_copy(update={"rounds": (first, *record.rounds[1:])}), OPS)
    path = tmp_path_factory.mktemp("runs") / "run.json"
    write_document(path, record)
    return llmprof.load(path)


def test_three_lines_of_python_give_the_median_decode_step(frames: RunFrames) -> None:
    steps = frames.steps
    decode = steps[(steps["pass"] == "clean") & (steps["phase"] == "decode")]
    by_round = decode.groupby("round")["duration_s"].median()
    (measured,) = [p for p in frames.report.phases if p.phase.value == "decode"]
    assert by_round.median() == pytest.approx(measured.step_s.point)
    assert len(decode) == 8 * 8


def test_what_was_not_measured_is_missing(frames: RunFrames) -> None:
    assert frames.steps["device_s"].isna().all()
    assert frames.rounds["power_w"].isna().all()
    assert frames.requests["queue_s"].isna().all()


def test_frames_agree_with_the_report(frames: RunFrames) -> None:
    groups, ops, ceilings = frames.groups, frames.ops, frames.ceilings
    assert set(groups["phase"]) == {"prefill", "decode"}
    ledger = frames.report.ledgers[0]
    head = groups[(groups["phase"] == "prefill") & (groups["group"] == "lm_head")].iloc[0]
    entry = next(one for one in ledger.groups if one.group is OpGroup.LM_HEAD)
    assert head["time_s"] == entry.time_s.point
    assert head["weights_bytes"] == entry.traffic.weights
    assert list(ops["op"]) == ["llmprof.matvec"]
    assert ops["time_s"].iloc[0] == pytest.approx(4e-3)
    assert len(ceilings) == 9
    assert ceilings["time_s"].is_monotonic_increasing
    assert frames.requests["reason"].tolist() == ["too long"]
    assert len(frames.rounds) == 8 + 8 + 3


def test_every_quantity_has_its_unit_in_its_name(frames: RunFrames) -> None:
    plain = {
        "pass", "round", "step", "steps", "phase", "sequences", "new_tokens", "cached_tokens",
        "running", "waiting", "run_queue_fraction", "cpu_per_wall", "steal_fraction", "group",
        "ops", "op", "calls", "side", "read_level", "read_kernel", "matmul_dtype", "request",
        "prompt_tokens", "output_tokens", "tokens_given", "preemptions", "outcome", "reason",
        "flops", "pressure_fraction", "quota_used_up_fraction",
    }  # fmt: skip
    units = ("_s", "_bytes", "_per_s", "_hz", "_w", "_celsius")
    for frame in (
        frames.steps,
        frames.rounds,
        frames.groups,
        frames.ops,
        frames.ceilings,
        frames.requests,
    ):
        assert [c for c in frame.columns if c not in plain and not str(c).endswith(units)] == []


def test_a_run_that_is_not_there_is_an_error_for_people(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        llmprof.load(tmp_path / "none.json")


def test_importing_llmprof_stays_light() -> None:
    code = (
        "import sys, llmprof; llmprof.load; "
        "print([m for m in ('pandas', 'torch', 'numpy', 'pydantic') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
