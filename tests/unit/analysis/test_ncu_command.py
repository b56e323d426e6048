"""The commands that profile a run: the words that a shell makes of them, and the settings in them."""

import json
import shlex
from pathlib import Path

import pytest

from llmprof.analysis.ncu import hardware_flops_of, metrics_for
from llmprof.analysis.ncu_command import ncu_commands
from llmprof.cli.app import execute
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.cost import Phase
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import Pass, RunConfig
from llmprof.store.ncu_csv import ProfiledKernel
from llmprof.store.runs import save_run
from llmprof.store.settings_file import load_settings
from tests.records import a_run_record
from tests.unit.instruments.environments import a_gpu


def a_gpu_run(**settings: object) -> RunRecord:
    record = a_run_record(
        settings=RunConfig.model_validate({"model": "my models/tiny.gguf", **settings})
    )
    environment = record.environment.model_copy(update={"gpu": a_gpu(), "device": "cuda:0"})
    return record.model_copy(update={"environment": environment})


def settings_in(profile: str) -> RunConfig:
    """Settings of `llmprof run ...` in the command, read as the command line reads them."""
    words = shlex.split(profile)
    run = words[words.index("llmprof") :]
    assert run[:2] == ["llmprof", "run"]
    assert run[3] == "--quiet"
    sets = run[4:]
    assert set(sets[::2]) == {"--set"}
    return load_settings(run[2], {}, sets[1::2])


def test_the_same_settings_and_one_round_with_ranges() -> None:
    record = a_gpu_run(
        weights={"source": "random", "dtype": "bf16"},
        workload={"batch": 4, "seed": 7},
        attention={"kind": "standard"},
        routing={"kind": "recorded", "file": "routes: a, [b].jsonl"},
        measure={"rounds": 20, "confirm": True},
        gate={"tolerance": 0.1},
    )
    (first, _) = ncu_commands(record).commands
    found = settings_in(first.profile)
    assert found.measure.passes == (Pass.CLEAN, Pass.NVTX)
    assert (found.measure.rounds, found.measure.warmup, found.measure.confirm) == (1, 1, False)
    kept = {"measure": record.settings.measure, "gate": record.settings.gate}
    assert found.model_copy(update=kept) == record.settings


def test_a_command_per_phase_with_its_filter_its_file_and_its_steps() -> None:
    record = a_gpu_run()
    commands = ncu_commands(record).commands
    assert [one.phase for one in commands] == [Phase.PREFILL, Phase.DECODE]
    shapes = [step.shape.phase for step in record.rounds[0].steps]
    for one in commands:
        words = shlex.split(one.profile)
        name = f"counters.{one.phase.value}.csv"
        assert words[:4] == ["ncu", "--nvtx", "--nvtx-include", f"llmprof.{one.phase.value}/"]
        assert words[words.index("--page") + 1] == "raw"
        assert words[words.index("--log-file") + 1] == name
        assert one.steps == shapes.count(one.phase)
        assert shlex.split(one.compare)[:3] == ["llmprof", "ncu", name]
        assert shlex.split(one.compare)[3:] == ["--run", record.id, "--steps", str(one.steps)]
    assert [one.phase for one in ncu_commands(record, Phase.DECODE).commands] == [Phase.DECODE]
    with pytest.raises(InputError, match="has no mixed"):
        ncu_commands(record, Phase.MIXED)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "int8"])
def test_what_is_asked_for_is_what_is_compared(dtype: str) -> None:
    kernel = ProfiledKernel("k", dict.fromkeys(metrics_for(dtype), 1.0), "")
    # One tensor operation; fadd 1, fmul 1, ffma 2, hadd 2, hmul 2, hfma 4.
    assert hardware_flops_of([kernel]) == 1 + 1 + 1 + 2 + 2 + 2 + 4


def test_an_unknown_dtype_has_no_hardware_flops() -> None:
    assert metrics_for("posit16")[-1] == "dram__bytes_write.sum"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"workload": {"kind": "trace", "arrival_rate_per_s": 3.0}},
            "requests arrive by the clock",
        ),
        ({"parallel": {"tensor": 2}}, "waits for another rank"),
    ],
)
def test_what_ncu_cannot_repeat_is_refused(settings: dict[str, object], why: str) -> None:
    with pytest.raises(CapabilityError, match=why):
        ncu_commands(a_gpu_run(**settings))


def test_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LLMPROF_DIR", str(tmp_path))
    record = a_gpu_run()
    save_run(record)
    assert execute(["ncu"]) == 0
    expected = ncu_commands(record)
    lines = capsys.readouterr().out.splitlines()
    for one in expected.commands:
        assert lines[lines.index(one.profile) + 1] == one.compare
    assert execute(["ncu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == expected.model_dump(mode="json", by_alias=True)
    assert execute(["ncu", "--steps", "3"]) == 2


def test_a_run_on_a_cpu_is_not_for_ncu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LLMPROF_DIR", str(tmp_path))
    save_run(a_run_record())
    assert execute(["ncu"]) == 7
    assert "ncu profiles kernels of a GPU" in capsys.readouterr().err
