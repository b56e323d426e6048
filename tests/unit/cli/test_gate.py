"""`llmprof gate`: every exit code by its cause, and what CI reads."""

import json
import subprocess
from pathlib import Path
from xml.etree.ElementTree import parse

import pytest

from llmprof.cli.app import execute
from llmprof.errors import CapabilityError, MeasurementFailedError
from llmprof.schema.gate_result import GateResult
from tests.fake_arms import RECORD, Fake, FakeMachine, write_settings
from tests.records import QUIET

WAITING = QUIET.model_copy(update={"worst_thread_fraction": 0.5})


def gate(*more: str) -> int:
    return execute(["gate", "run", "cand.yaml", "--base", "base.yaml", "-q", *more])


def test_0_where_nothing_changed(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    machine = fake(FakeMachine())
    assert gate() == 0
    out, err = capsys.readouterr()
    assert "No regression. Exit code 0." in out
    assert err == ""
    # Two launches; which arm is started first changes.
    assert machine.opened == ["base.yaml", "cand.yaml", "cand.yaml", "base.yaml"]


def test_no_launch_is_made_for_no_pairs(fake: Fake, tmp_path: Path) -> None:
    write_settings(tmp_path / "cand.yaml", "  rounds: 7\n  launches: 20\n")
    machine = fake(FakeMachine())
    assert gate() == 0
    assert len(machine.opened) == 2 * 7


def test_it_says_which_arm_it_loads_before_the_first_pair(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loading and warming up both takes most of a minute on a slow machine."""
    fake(FakeMachine())
    assert execute(["gate", "run", "cand.yaml", "--base", "base.yaml"]) == 0
    told = [line.removeprefix("llmprof: ") for line in capsys.readouterr().err.splitlines()]
    assert told[:3] == [
        "loading the baseline, base.yaml",
        "loading the candidate, cand.yaml",
        "first look 0/12",
    ]


def test_1_for_a_confirmed_regression(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    machine = fake(FakeMachine(slower=1.1))
    assert gate("--json") == 1
    result = GateResult.model_validate_json(capsys.readouterr().out)
    tpot = next(one for one in result.judgements if one.metric.name == "decode.tpot_s.p50")
    assert tpot.ratio is not None
    assert tpot.ratio.low < 1.1 < tpot.ratio.high
    assert "confirmed in new processes, worse in all 4 launches" in tpot.reason
    assert len(machine.opened) == 8
    assert [pair.candidate_first for pair in result.pairs[:4]] == [False, True, True, False]


def test_1_for_one_operator_more(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake(FakeMachine(counters={"cand.yaml": {"decode.ops_per_token": 305.0}}))
    assert gate() == 1
    assert "decode.ops_per_token" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gate", "run", "cand.yaml"], "nothing to compare the candidate with"),
        (["gate", "run", "cand.yaml", "--base", "b.yaml", "--base-ref", "x"], "contradict"),
        (["gate", "run", "cand.yaml", "--base", "missing.yaml"], "missing.yaml does not exist"),
        (["gate", "run", "some-model", "--base-ref", "main"], "needs a settings file"),
        (["gate", "run", "cand.yaml", "--base-ref", "main"], "cannot read cand.yaml at main"),
        (["gate", "run", "cand.yaml", "--base-ref=--output=x"], "is no git ref"),
        (["gate", "run", "cand.yaml", "--base", "base.yaml", "-o", "x.pdf"], "ends in '.pdf'"),
        (["gate", "run", "cand.yaml", "--base", "base.yaml", "--junit", "no/x.xml"], "no/x.xml"),
        (
            ["gate", "run", "cand.yaml", "--base", "base.yaml", "--bencher=x.json", "-o", "x.json"],
            "x.json is given for two outputs",
        ),
        (
            ["gate", "run", "cand.yaml", "--base", "base.yaml", "--summary=x.md", "-o", "x.md"],
            "x.md is given for two outputs",
        ),
        (["gate", "check", "missing.json"], "missing.json does not exist"),
        (["gate", "nothing"], "No such command"),
        (["gate"], "error: Missing command. See 'llmprof gate --help'"),
    ],
)
def test_2_for_bad_input(
    fake: Fake, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(FakeMachine())
    assert execute(arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("  metrics: [{name: speed, tolerance: 0.1}]\n", "no metric 'speed'"),
        ("  metrics: [{name: decode.roof_fraction.p50, tolerance: 0.1}]\n", "not judged by paired"),
        ("  metrics: [{name: weights.bytes, tolerance: 0}]\n", "names no time"),
        ("  tolerance: 0\n", "gate.tolerance is 0"),
        ("  rounds: 6\n", "gate.rounds is 6"),
        ("  budgets: [{name: decode.tpot_s.p50}]\n", "neither max nor min"),
        ("  metrics: [{name: decode.tpot_s.p50, tolerance: 0}]\n", "has a tolerance of 0"),
        (
            "  rounds: 7\n  metrics:\n"
            + "".join(
                f"    - {{name: {name}.p50, tolerance: 0.05}}\n"
                for name in (
                    "prefill.ttft_s",
                    "decode.tpot_s",
                    "prefill.step_s",
                    "decode.step_s",
                )
            ),
            "gate.rounds is 7: so few pairs cannot show",
        ),
    ],
)
def test_2_for_settings_that_cannot_be_judged(
    fake: Fake, tmp_path: Path, settings: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(FakeMachine())
    write_settings(tmp_path / "cand.yaml", settings)
    assert gate() == 2
    assert said in capsys.readouterr().err


def test_2_for_arms_of_different_work(fake: Fake, tmp_path: Path) -> None:
    fake(FakeMachine())
    (tmp_path / "base.yaml").write_text("model: some-model\nworkload: {batch: 4}\n")
    assert gate() == 2


def test_3_for_inconclusive_only_where_asked(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(FakeMachine(noise=0.12))
    assert gate() == 0
    assert "Inconclusive. Exit code 0." in capsys.readouterr().out
    write_settings(tmp_path / "cand.yaml", "  tolerance: 0.05\n  on_inconclusive: fail\n")
    assert gate() == 3
    assert "pairs would show a change of the tolerance" in capsys.readouterr().out


def test_5_for_a_machine_that_spoils_the_pairs(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = fake(FakeMachine(contention=WAITING))
    assert gate("--json") == 5
    result = json.loads(capsys.readouterr().out)
    assert result["verdict"] == "unstable"
    # A quarter of twelve pairs may be taken again; nothing more is started after that.
    assert len(result["pairs"]) == 4
    assert {pair["rejected"] for pair in result["pairs"]} == {"its threads waited for a CPU"}
    assert len(machine.opened) == 2


def test_6_for_an_arm_that_fails(fake: Fake, tmp_path: Path) -> None:
    fake(FakeMachine(fails=MeasurementFailedError("out of memory while loading")))
    assert gate("--junit", "gate.xml") == 6
    error = parse(tmp_path / "gate.xml").find(".//testcase/error")
    assert error is not None
    assert error.get("message") == "out of memory while loading"


def test_6_for_other_tokens_from_the_same_settings(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(FakeMachine(outputs={"cand.yaml": "other"}))
    assert gate() == 6
    assert "different tokens" in capsys.readouterr().err
    assert gate("--allow-other-outputs") == 0


SLOWER_KERNEL = RECORD.engine.model_copy(
    update={
        "weights_checksum": "0f" * 8,
        "kernels": {**RECORD.engine.kernels, "projections": "vectors"},
    }
)
WEIGHTS_CHANGED = RECORD.engine.model_copy(update={"weights_checksum": "1f" * 8})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "different tokens, from token 3 on; their weights were the same to the bit"),
        (
            {"output_tokens": ((6, 8, 8),), "engine": WEIGHTS_CHANGED},
            f"from token 1 on; their weights differed in memory (checksums {'0f' * 8}, {'1f' * 8})",
        ),
        (
            {"engine": SLOWER_KERNEL},
            "from token 3 on; projections by torch.nn.functional.linear, then by vectors; their",
        ),
        # What an llmprof of before has to say.
        ({"output_tokens": None, "engine": RECORD.engine}, "gave different tokens. Check the"),
    ],
)
def test_6_for_a_launch_that_writes_what_none_before_it_wrote(
    fake: Fake, capsys: pytest.CaptureFixture[str], changes: dict[str, object], told: str
) -> None:
    odd = {"output_sha256": "other", "output_tokens": ((7, 8, 8),), **changes}
    fake(FakeMachine(relaunched={"base.yaml": odd}))
    assert gate() == 6
    error = capsys.readouterr().err
    assert error.startswith("llmprof: error: base.yaml: two launches of the same greedy workload")
    assert told in error


def test_other_tokens_of_other_numerics_are_a_caveat(fake: Fake, tmp_path: Path) -> None:
    fake(FakeMachine(outputs={"cand.yaml": "other"}))
    (tmp_path / "cand.yaml").write_text("model: some-model\nweights: {quantization: int8}\n")
    assert gate() == 0


def test_7_for_a_missing_capability(fake: Fake) -> None:
    fake(FakeMachine(fails=CapabilityError("no kernel for fp8")))
    assert gate() == 7


def test_130_for_an_interrupt(fake: Fake) -> None:
    fake(FakeMachine(fails=KeyboardInterrupt()))
    assert gate() == 130


def test_the_base_may_be_the_same_file_of_another_commit(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_settings(tmp_path / "cand.yaml", model="old-model")
    git = [
        "git",
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.com",
        "-c",
        "commit.gpgsign=false",
    ]
    for command in (["init", "-q"], ["add", "cand.yaml"], ["commit", "-qm", "base"]):
        subprocess.run([*git, *command], check=True, cwd=tmp_path)
    write_settings(tmp_path / "cand.yaml", model="new-model")
    fake(FakeMachine(baseline="cand.yaml at HEAD"))
    assert execute(["gate", "run", "cand.yaml", "--base-ref", "HEAD", "-q", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["baseline"]["label"] == "cand.yaml at HEAD"
    assert result["location"] == {"file": "cand.yaml", "line": 4}


def test_calibrate_keeps_the_noise_and_gate_refuses_a_tolerance_below_it(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(FakeMachine(noise=0.02))
    assert execute(["gate", "calibrate", "cand.yaml", "-q"]) == 0
    assert "decode.tpot_s.p50" in capsys.readouterr().out
    assert gate() == 0
    write_settings(tmp_path / "cand.yaml", "  tolerance: 0.004\n")
    assert gate() == 2
    assert "below the noise floor" in capsys.readouterr().err
    assert gate("--allow-underpowered") == 0
    assert execute(["gate", "calibrate", "cand.yaml", "-q"]) == 2
    assert "fails at random" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that nobody can write")
def test_calibrate_finds_an_unwritable_folder_before_it_measures(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = fake(FakeMachine(noise=0.02))
    monkeypatch.setenv("LLMPROF_DIR", "/proc/store")
    assert execute(["gate", "calibrate", "cand.yaml", "-q"]) == 2
    assert "cannot make folder" in capsys.readouterr().err
    assert machine.opened == []


def test_5_for_a_machine_too_busy_to_calibrate(fake: Fake) -> None:
    fake(FakeMachine(contention=WAITING))
    assert execute(["gate", "calibrate", "cand.yaml", "-q"]) == 5


def test_github_gets_a_summary_and_annotations_that_point_at_the_tolerance(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    (tmp_path / "summary.md").write_text("before\n")
    fake(FakeMachine(slower=1.1))
    assert gate() == 1
    (annotation,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    assert annotation.startswith(
        "::error file=cand.yaml,line=4,title=llmprof gate%3A regression::prefill.ttft_s.p50 +"
    )
    assert "%0Adecode.tpot_s.p50 +" in annotation
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("before\n### llmprof gate: FAIL")
    assert gate("--no-ci") == 1
    assert "::error" not in capsys.readouterr().out


def test_with_json_stdout_stays_one_document(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    fake(FakeMachine(slower=1.1))
    assert gate("--json") == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["exit_code"] == 1
    assert err.startswith("::error ")
