"""Comparisons whose arms are processes: real workers, other interpreters, a tiny model.

Each worker is a Python that imports torch, so these are among the slowest tests there are.
"""

import json
import os
import sys
import venv
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from llmprof.ceilings.measure import keep_ceilings
from llmprof.cli.app import execute
from llmprof.experiments.arm_process import ArmProcess
from llmprof.instruments.host_memory import HostMemory
from llmprof.instruments.snapshot import snapshot
from llmprof.profiler import profile
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import AttentionKind, RunConfig
from llmprof.store.runs import find_run
from tests.sweeps import measured_ceilings


@pytest.fixture(autouse=True)
def kept_ceilings(in_a_fresh_folder: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ceilings in the user's cache, where this process and its workers find them."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setenv("LLMPROF_CACHE_DIR", str(tmp_path / "cache"))
    known = {"environment": snapshot("cpu", 1), "measured_at": datetime.now(UTC)}
    keep_ceilings(measured_ceilings().model_copy(update=known))


def _pids(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Label and process of every worker that is started."""
    enter, seen = ArmProcess.__enter__, []

    def noted(self: ArmProcess) -> ArmProcess:
        entered = enter(self)
        seen.append((self.plan.label, self._process.pid))
        return entered

    monkeypatch.setattr(ArmProcess, "__enter__", noted)
    return seen


def _full_beside_the_first(monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunRecord]:
    """As `profile`, on a host that has 1000 bytes left once the candidate is to be loaded too."""

    def beside(config: RunConfig, **others: Any) -> RunRecord:
        if config.attention.kind is AttentionKind.STANDARD:
            left = HostMemory(total_bytes=2**30, available_bytes=1000)
            monkeypatch.setattr("llmprof.placement.host_memory", lambda: left)
        return profile(config, **others)

    return beside


def test_arms_that_memory_does_not_hold_at_once_are_measured_in_processes_of_their_own(
    tiny: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started = _pids(monkeypatch)
    monkeypatch.setattr("llmprof.experiments.paired.profile", _full_beside_the_first(monkeypatch))
    words = [
        "compare",
        tiny,
        "--threads",
        "1",
        "--rounds",
        "1",
        "--cand",
        "attention.kind=standard",
    ]
    sets = {
        "weights.dtype": "fp32",
        "workload.prompt_tokens": 8,
        "workload.output_tokens": 4,
        "measure.warmup": 1,
    }
    words += [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    code = execute([*words, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "memory does not hold both: each pair loads one after the other (pairs: 1)" in err

    assert [label for label, _ in started] == ["baseline", "candidate"]
    assert len({pid for _, pid in started} - {os.getpid()}) == 2
    found = json.loads(out)
    live = found["live"]
    assert (live["arrangement"], live["num_pairs"]) == ("own_processes", 1)
    assert live["outputs"]["same"] is True  # flash and standard agree on the greedy tokens
    assert live["confirmation"]["predicted_at"] < live["confirmation"]["measured_at"]
    assert "memory.peak_bytes" in {one["metric"]["name"] for one in found["metrics"]}
    for side, kind in (("baseline", "flash"), ("candidate", "standard")):
        record = find_run(found[side]["run_ids"][0])
        assert record.settings.attention.kind.value == kind
        assert [one.index for one in record.rounds] == [0]
        assert record.output_sha256 is not None
        assert record.peak_memory_bytes is not None
        assert record.ceilings.bandwidth == measured_ceilings().bandwidth  # none were measured


def _other_python(folder: Path, told: Path) -> Path:
    """An environment's interpreter, with this torch and llmprof, that tells whenever it starts."""
    venv.create(folder, system_site_packages=True, with_pip=False)
    (site,) = (folder / "lib").glob("python*/site-packages")
    here = [str(Path(__file__).parents[2]), *(one for one in sys.path if "site-packages" in one)]
    tell = f"import sys; open({str(told)!r}, 'a').write(sys.prefix + chr(10))"
    (site / "here.pth").write_text("\n".join([*here, tell]) + "\n")
    return folder / "bin" / "python"


def test_a_gate_whose_baseline_is_another_environment(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tolerance is wide and no pair is rejected: whatever else runs here, the verdict is one."""
    monkeypatch.setattr("llmprof.experiments.gate_arms.why_spoiled", lambda *_: None)
    python = _other_python(tmp_path / "other", told := tmp_path / "starts.txt")
    started = _pids(monkeypatch)
    metrics = "decode.tpot_s.p50: 90", "weights.bytes: 0", "decode.ops_per_token: 0"
    listed = [f"    - {{name: {name}, tolerance: {limit}}}" for name, limit in _pairs(metrics)]
    config = [
        f"model: {tiny}",
        "weights: {dtype: fp32}",
        "execution: {threads: 1}",
        "workload: {prompt_tokens: 8, output_tokens: 4}",
        "gate:",
        "  rounds: 7",
        "  seconds_per_turn: 0.001",
        "  metrics:",
        *listed,
    ]
    Path("gate.yaml").write_text("\n".join(config) + "\n")
    words = ["gate", "run", "gate.yaml", "--base-python", str(python), "--junit", "gate.xml"]
    code = execute([*words, "--json", "-q"])
    out, err = capsys.readouterr()
    assert code == 0, err

    found = json.loads(out)
    assert (found["verdict"], found["num_launches"], len(found["pairs"])) == ("pass", 2, 7)
    judged = {one["metric"]["name"]: one for one in found["judgements"]}
    assert {one["verdict"] for one in judged.values()} == {"pass"}
    assert judged["weights.bytes"]["baseline"] == judged["weights.bytes"]["candidate"] > 0
    assert judged["decode.ops_per_token"]["candidate"] > 0
    assert found["baseline"]["label"] == f"gate.yaml by {python}"
    assert found["baseline"]["output_sha256"] == found["candidate"]["output_sha256"] is not None
    labels = [label for label, _ in started]
    assert labels.count("gate.yaml") == labels.count(f"gate.yaml by {python}") == 2
    assert set(told.read_text().split()) == {str(tmp_path / "other")}
    assert 'failures="0"' in Path("gate.xml").read_text()


def _pairs(lines: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(name, limit) for name, _, limit in (line.partition(": ") for line in lines)]
