"""A neighbour that spins on the run's own core: the run must say so, and judge nothing."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmprof.analysis.report import build_report
from llmprof.profiler import profile
from llmprof.schema.ceilings import Ceilings
from llmprof.schema.settings import RunConfig
from llmprof.schema.verdict import Limit
from tests.records import a_run_record
from tests.tiny_decoders import LLAMA, write_decoder

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or not Path("/proc/self/schedstat").exists(),
    reason="the system does not tell how long a thread waited for its core",
)


@pytest.fixture
def shared_core() -> Iterator[int]:
    """Pin this thread and a spinning process to one core: any more load only makes it worse."""
    cores = os.sched_getaffinity(0)
    core = min(cores)
    spinner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import os; os.sched_setaffinity(0, {{{core}}}); print('on', flush=True)\n"
            "while True: pass",
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert spinner.stdout is not None
        assert spinner.stdout.readline() == b"on\n"
        os.sched_setaffinity(0, {core})
        yield core
    finally:
        os.sched_setaffinity(0, cores)
        spinner.kill()
        spinner.wait()


def test_a_contended_run_says_so_and_judges_nothing(
    shared_core: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ceilings: Ceilings = a_run_record().ceilings
    monkeypatch.setattr("llmprof.profiler.cached_ceilings", lambda *_, **__: ceilings)
    config = RunConfig.model_validate(
        {
            "model": str(write_decoder(tmp_path / "tiny", LLAMA)),
            "weights": {"dtype": "fp32"},
            "execution": {"threads": 1},
            # Long enough that no round falls between two turns of the scheduler.
            "workload": {"prompt_tokens": 8, "output_tokens": 100},
            "measure": {"warmup": 1, "rounds": 3},
        }
    )
    report = build_report(profile(config))

    assert "contended" in {caveat.code for caveat in report.caveats}
    assert {verdict.limit for verdict in report.verdicts} == {Limit.INCONCLUSIVE}
    assert all("contended" in " ".join(verdict.reasons) for verdict in report.verdicts)
