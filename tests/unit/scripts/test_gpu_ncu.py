"""What a fake ncu says, and what becomes of it."""

import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scripts.gpu.job import Job, read_found
from scripts.gpu.ncu_check import CASES, compare_with_ncu


class Ncu:
    """Writes its log where it is told to."""

    def __init__(self, log: str, *, code: int = 0, stderr: str = "", hangs: bool = False) -> None:
        self.cases: list[str] = []
        self._log, self._hangs = log, hangs
        self._done = SimpleNamespace(returncode=code, stderr=stderr, stdout="")

    def __call__(self, command: list[str], *, timeout: float, **_: Any) -> SimpleNamespace:
        self.cases.append(command[command.index("scripts.gpu.ncu_target") + 1])
        if self._hangs:
            raise subprocess.TimeoutExpired(command, timeout)
        Path(command[command.index("--log-file") + 1]).write_text(self._log)
        return self._done


def found_with(ncu: Ncu, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(subprocess, "run", ncu)
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/ncu")
    compare_with_ncu(Job("cuda:0", "m", folder, 600.0, time.perf_counter()))
    return {case: told["not_measured"] for case, told in read_found(folder)["ncu"].items()}


def test_what_ncu_refuses_is_told_in_its_words_and_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --log-file its errors are in the file: stderr has the words of what it profiles alone."""
    words = "Failed to initialize the profiler: LibraryNotLoaded"
    log = f"==PROF== Connected to process 7\n==ERROR== {words}\n"
    ncu = Ncu(log, code=1, stderr="UserWarning: something else")
    assert found_with(ncu, tmp_path, monkeypatch) == dict.fromkeys(CASES, words)
    assert ncu.cases == [next(iter(CASES))]


def test_one_that_hangs_is_not_waited_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ncu = Ncu("", hangs=True)
    assert set(found_with(ncu, tmp_path, monkeypatch).values()) == {"ncu did not end within 25 s"}
    assert len(ncu.cases) == 1


def test_a_case_that_fails_by_itself_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = "==ERROR== The application returned an error code (1).\n"
    ncu = Ncu(log, code=1, stderr="DoesNotFitError: too large")
    assert set(found_with(ncu, tmp_path, monkeypatch).values()) == {"DoesNotFitError: too large"}
    assert ncu.cases == list(CASES)
