from pathlib import Path

import pytest

from tests.fake_arms import Fake, FakeMachine, write_settings


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setenv("LLMPROF_DIR", str(tmp_path / "store"))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("llmprof.experiments.gate_arms.PAUSE_S", 0.0)
    for name in ("base", "cand"):
        write_settings(tmp_path / f"{name}.yaml")

    def install(machine: FakeMachine) -> FakeMachine:
        monkeypatch.setattr("llmprof.experiments.gate_arms.ArmProcess", machine)
        return machine

    return install
