"""Recorded steps: a run from end to end."""

from pathlib import Path

import pytest

from llmprof.analysis.report import build_report
from llmprof.profiler import profile
from llmprof.schema.cost import Phase
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from tests.records import a_run_record
from tests.tiny_decoders import LLAMA, write_decoder


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, RunRecord]:
    """By execution mode."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLMPROF_DIR", raising=False)
    ceilings = a_run_record().ceilings
    monkeypatch.setattr("llmprof.profiler.cached_ceilings", lambda *_, **__: ceilings)
    path = write_decoder(tmp_path / "tiny", LLAMA)
    return {mode: profile(_config(path, mode)) for mode in ("eager", "compiled")}


def _config(path: Path, mode: str) -> RunConfig:
    return RunConfig.model_validate(
        {
            "model": str(path),
            "weights": {"dtype": "fp32"},
            "execution": {"mode": mode, "threads": 1},
            "workload": {"prompt_tokens": 8, "output_tokens": 5},
            "measure": {"warmup": 1, "rounds": 3},
        }
    )


def test_a_run_of_recorded_steps(records: dict[str, RunRecord]) -> None:
    eager, compiled = records["eager"], records["compiled"]
    assert compiled.output_sha256 == eager.output_sha256
    assert compiled.counted == eager.counted, "counting looks at the same kernels, one by one"
    for record in (eager, compiled):
        decode = record.grouped[0].steps[-1]
        assert decode.shape.phase is Phase.DECODE
        groups = [(time.group, time.calls) for time in decode.groups]
        assert groups == [(time.group, time.calls) for time in eager.grouped[0].steps[-1].groups]
    assert build_report(compiled).ledgers
