"""`llmprof run` from the command line to the run file, on small random models and on the demo model."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from llmprof.analysis.report import build_report
from llmprof.cli.app import execute
from llmprof.engine.engine_workload import EngineWorkload
from llmprof.engine.probe import Probe
from llmprof.errors import MeasurementFailedError
from llmprof.instruments.injection import HostSleep
from llmprof.instruments.own_cost import measure_own_cost
from llmprof.instruments.snapshot import snapshot
from llmprof.profiler import measure, profile
from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.ledger import Ledger, Part
from llmprof.schema.run import OwnCost, RunRecord
from llmprof.schema.settings import RunConfig
from llmprof.store.runs import find_run
from tests.tiny_decoders import LLAMA

FEW = ("--prompt-tokens", "8", "--output-tokens", "4")
SMALL = {
    "weights": {"dtype": "fp32"},
    "execution": {"threads": 1},
    "workload": {"prompt_tokens": 8, "output_tokens": 4},
    "measure": {"warmup": 1, "rounds": 3},
}


pytestmark = pytest.mark.usefixtures("known_ceilings")


def small_run(model: str, **groups: dict[str, object]) -> RunRecord:
    return profile(RunConfig.model_validate({"model": model} | SMALL | groups))


def test_a_record_holds_every_pass_and_its_readings(tiny: str) -> None:
    record = small_run(tiny)

    assert record.status == "complete"
    assert record.phases == (Phase.PREFILL, Phase.DECODE)
    assert [len(round_.steps) for round_ in record.rounds] == [4, 4, 4]
    assert len(record.grouped) == 3
    assert all(round_.before and round_.after for round_ in (*record.rounds, *record.grouped))
    assert all(step.groups for round_ in record.grouped for step in round_.steps)
    assert not any(step.groups for round_ in record.rounds for step in round_.steps)
    assert {step.shape.phase for step in record.counted} == {Phase.PREFILL, Phase.DECODE}
    assert not any(op.missing_formula for step in record.counted for op in step.ops)
    assert record.output_sha256 is not None
    assert RunRecord.model_validate_json(record.model_dump_json()) == record


def test_passes_that_are_not_asked_for_are_not_made(tiny: str) -> None:
    record = small_run(tiny, measure={"warmup": 0, "rounds": 3, "passes": ["clean"]})

    assert record.grouped == ()
    assert record.counted == ()
    report = build_report(record)
    assert report.ledgers == ()
    assert {caveat.code for caveat in report.caveats} >= {"no-ledger"}


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_tracing_pass_times_every_counted_op(tiny: str, mode: str) -> None:
    passes = ["clean", "counting", "tracing"]
    record = small_run(
        tiny,
        measure={"warmup": 1, "rounds": 2, "passes": passes},
        execution={"mode": mode, "threads": 1},
    )

    trace = record.trace
    assert trace is not None
    assert [len(one.steps) for one in record.traced] == [4, 4, 4]
    assert [(line.round, line.step) for line in trace.timelines] == [
        (round_, step) for round_ in range(3) for step in (0, 2)
    ]
    counted = {step.shape.phase: step for step in record.counted}
    for line in trace.timelines:
        step = record.traced[line.round].steps[line.step]
        ops = Counter((plain_name(trace.ops[op].op), trace.ops[op].group) for op in line.op)
        expected: Counter[tuple[str, OpGroup]] = Counter()
        for op in counted[step.shape.phase].ops:
            expected[plain_name(op.op), op.group] += op.calls
        assert in_groups(ops) == in_groups(expected)
        assert 0 < sum(line.duration_s) < step.duration_s
    assert not any(step.groups for one in record.rounds for step in one.steps)
    assert record.output_sha256 == small_run(tiny).output_sha256


def plain_name(op: str) -> str:
    """A recorded step adds with a kernel of ours, since torch's would have to go through Python."""
    return "add_" if op in ("llmprof.add_", "aten.add_") else op


def in_groups(ops: Counter[tuple[str, OpGroup]]) -> dict[tuple[str, OpGroup], int]:
    """Outside of them the runner of recorded steps has copies of its own."""
    return {op: calls for op, calls in ops.items() if op[1] is not OpGroup.OTHER}


def test_a_synthetic_context_is_decode_alone_at_that_context(tiny: str) -> None:
    record = small_run(
        tiny, workload={"prompt_tokens": 16, "output_tokens": 4, "context": "synthetic"}
    )

    assert record.phases == (Phase.DECODE,)
    assert [step.shape.cached_tokens for step in record.rounds[0].steps] == [16, 17, 18]


def test_random_weights_are_stamped(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(dict(LLAMA.config)))
    record = small_run(str(path), weights={"dtype": "fp32", "source": "random"})

    assert record.engine.random_weights
    assert "random-weights" in {caveat.code for caveat in build_report(record).caveats}


def part(ledger: Ledger, wanted: Part) -> float:
    return next(entry.time_s.point for entry in ledger.parts if entry.part is wanted)


def test_a_host_sleep_is_found_in_the_host_part(tiny: str) -> None:
    config = RunConfig.model_validate({"model": tiny} | SMALL)
    sleep_s = 0.005

    def ledger_with(inject: bool) -> Ledger:
        workload = open_workload(config)
        record = measure(
            workload,
            config,
            device="cpu",
            threads=1,
            inject=(lambda probe: sleepy(probe)) if inject else None,
        )
        report = build_report(record)
        return next(ledger for ledger in report.ledgers if ledger.phase is Phase.DECODE)

    def sleepy(probe: Probe) -> Probe:
        return HostSleep(probe, sleep_s)

    base, slept = ledger_with(False), ledger_with(True)

    # A sleep never ends early, however busy the machine; tests/benchmarks/ledger_injection.py looks
    # at the other parts on a quiet one.
    assert part(slept, Part.HOST) >= sleep_s
    assert part(base, Part.HOST) < part(slept, Part.HOST)
    total = sum(entry.time_s.point for entry in slept.parts)
    assert total == pytest.approx(slept.step_s.point, rel=0.05)


def open_workload(config: RunConfig) -> EngineWorkload:
    from llmprof.architectures.source import resolve_model
    from llmprof.engine.engine import Engine

    source = resolve_model(config.model, weights=config.weights.source)
    engine = Engine.load(source, config, device="cpu", threads=1, host_available_bytes=2**33)
    return EngineWorkload(engine, config)


def test_the_command_prints_writes_and_keeps(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", tiny, "--dtype", "fp32", "--threads", "1", "--rounds", "3"]
    arguments += ["--prompt-tokens", "8", "--output-tokens", "4", "--set", "measure.warmup=1"]

    assert execute([*arguments, "-o", "report.html", "-o", "roofline.svg"]) == 0

    out, err = capsys.readouterr()
    assert "PREFILL" in out
    assert "DECODE" in out
    assert "run file" in out
    assert "rounds 3/3" in err
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert b"<svg" in (tmp_path / "roofline.svg").read_bytes()
    assert find_run("@last").settings.workload.prompt_tokens == 8

    assert execute([*arguments, "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["schema"] == "llmprof.report/1"
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["absent.gguf"], 2, "absent.gguf"),
        (["TINY", "--prompt-tokens", "4096"], 2, "4096"),
        (["TINY", *FEW, "--set", "kv_cache.memory_bytes=100"], 7, "kv_cache.memory_bytes"),
        (["TINY", "--set", "kv_cache.dtype=int8", "--set", "kv_cache.layout=none"], 2, "a cache"),
        (
            ["TINY", "--set", "workload.kind=trace", "--set", "workload.file=no.jsonl"],
            2,
            "no.jsonl",
        ),
        (["TINY", *FEW, "--set", "execution.fused=on"], 7, "execution.fused"),
        (["llama-3.1-70b", "--random-weights"], 7, "GiB"),
        (["llama-3.1-8b", "--random-weights", "--batch", "1000000"], 7, "GiB"),
        (["TINY", "--batch", "1000000000000"], 2, "--batch"),
        (["TINY", "--set", "workload.requests=8"], 7, "workload.requests has no effect"),
        (["TINY", "-o", f"{'a' * 300}.html"], 2, "too long"),
        (["llama-3.1-8b"], 2, "weights.source=random"),
        (["TINY", "-o", "report.docx"], 2, ".docx"),
    ],
)
def test_what_cannot_be_run_is_said_before_measuring(
    tiny: str,
    arguments: list[str],
    code: int,
    problem: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [tiny if word == "TINY" else word for word in arguments]

    assert execute(["run", "--quiet", *words]) == code

    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert problem in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_was_measured(
    tiny: str, tmp_path: Path, number: signal.Signals
) -> None:
    """A real signal in the middle of the rounds: exit 130, and a run file marked partial."""
    program = (
        "import llmprof.profiler as profiler\n"
        "from tests.records import a_run_record\n"
        "profiler.cached_ceilings = lambda *_, **__: a_run_record().ceilings\n"
        "from llmprof.cli.app import main; main()"
    )
    small_flags = ["--threads", "1", "--prompt-tokens", "8", "--output-tokens", "4"]
    process = subprocess.Popen(
        [sys.executable, "-c", program, "run", tiny, "--rounds", "5000", *small_flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "rounds 4/5000" in line:
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=60)

    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "run file" in out
    record = find_run("@last")
    assert record.status == "partial"
    assert 4 <= len(record.rounds) < 5000


def test_an_interrupt_after_the_last_round_loses_nothing(
    tiny: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A signal between the last round and the file: saved as complete, and the file is named."""

    def interrupted(*arguments: Any, **named: Any) -> OwnCost:
        os.kill(os.getpid(), signal.SIGINT)
        return measure_own_cost(*arguments, **named)

    monkeypatch.setattr("llmprof.session.measure_own_cost", interrupted)
    arguments = ["run", tiny, "--quiet", "--threads", "1", "--rounds", "2"]
    arguments += ["--prompt-tokens", "8", "--output-tokens", "4", "--set", "measure.warmup=0"]
    assert execute(arguments) == 130
    record = find_run("@last")
    assert (record.status, len(record.rounds)) == ("complete", 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"llmprof: interrupted: the run is saved in .llmprof/runs/{record.id}.json\n"


def test_the_environment_is_that_of_the_run(tiny: str) -> None:
    record = small_run(tiny)
    assert record.environment.threads == 1
    assert record.environment.fingerprint == snapshot("cpu", 1).fingerprint
    assert abs(time.time_ns() / 1e9 - record.created.timestamp()) < 600


def test_a_failure_in_a_later_round_keeps_the_earlier_ones(
    tiny: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Memory that runs out in the fourth round: exit 6, and three rounds are saved."""
    whole = EngineWorkload.run_round
    done: list[str] = []

    def until_memory_ends(self: EngineWorkload, probe: Probe) -> str:
        if len(done) == 4:
            raise MeasurementFailedError("out of memory while running a step")
        done.append(whole(self, probe))
        return done[-1]

    monkeypatch.setattr(EngineWorkload, "run_round", until_memory_ends)
    passes = ["--set", "measure.passes=[clean]", "--set", "measure.warmup=1"]
    assert execute(["run", tiny, "--rounds", "8", *FEW, *passes, "--quiet"]) == 6
    record = find_run("@last")
    assert (record.status, record.failed, len(record.rounds)) == ("partial", True, 3)
    reason = "failed (out of memory while running a step) after 3 of 8 rounds"
    assert record.status_reason == reason
    assert reason in " ".join(capsys.readouterr().out.split())
