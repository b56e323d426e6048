import subprocess
import sys

from llmprof.schema.diagnosis import Diagnosis


def run_doctor(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llmprof", "doctor", *options],
        capture_output=True,
        text=True,
        check=False,
    )


def test_one_json_document_on_stdout() -> None:
    done = run_doctor("--json")
    assert (done.returncode, done.stderr) == (0, "")
    diagnosis = Diagnosis.model_validate_json(done.stdout)
    assert diagnosis.schema_ == "llmprof.diagnosis/1"
    assert diagnosis.checks[0].name == "torch"


def test_the_table_says_what_cannot_be_measured_and_ends_with_0() -> None:
    done = run_doctor()
    assert done.returncode == 0
    assert "DRAM counters" in done.stdout
