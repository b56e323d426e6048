import subprocess
import sys

import pytest

from llmprof.cli.app import execute
from llmprof.schema.diagnosis import Diagnosis


@pytest.fixture(scope="module")
def done() -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llmprof", "doctor", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )


def test_one_json_document_on_stdout(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stderr) == (0, "")
    diagnosis = Diagnosis.model_validate_json(done.stdout)
    assert diagnosis.schema_ == "llmprof.diagnosis/1"
    assert diagnosis.checks[0].name == "torch"


def test_the_table_says_what_cannot_be_measured_and_ends_with_0(
    done: subprocess.CompletedProcess[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = Diagnosis.model_validate_json(done.stdout)
    monkeypatch.setattr("llmprof.instruments.diagnosis.diagnose", lambda: found)
    assert execute(["doctor"]) == 0
    assert "DRAM counters" in capsys.readouterr().out
