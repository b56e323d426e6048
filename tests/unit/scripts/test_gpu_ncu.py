"""What a fake ncu says and leaves, and what becomes of it."""

import json
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmprof.schema.cost import StepCost
from scripts.gpu import ncu_target
from scripts.gpu.job import Job, read_found
from scripts.gpu.ncu_check import BEGUN, CASES, STEPS, compare_with_ncu, cost_of, error_of

HEADER = (
    '"ID","Process ID","Kernel Name","gpu__time_duration.sum","dram__bytes_read.sum",'
    '"dram__bytes_write.sum"\n"","","","ns","byte","byte"\n'
)


class Ncu:
    """Writes its log where it is told to."""

    def __init__(self, log: str, *, code: int = 0, stderr: str = "", hangs: bool = False) -> None:
        self.runs = 0
        self._log, self._hangs = log, hangs
        self._done = SimpleNamespace(returncode=code, stderr=stderr, stdout="")

    def __call__(self, command: list[str], *, timeout: float, **_: Any) -> SimpleNamespace:
        self.runs += 1
        Path(command[command.index("--log-file") + 1]).write_text(self._log)
        if self._hangs:
            raise subprocess.TimeoutExpired(command, timeout)
        return self._done


def found_with(ncu: Ncu, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(subprocess, "run", ncu)
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/ncu")
    compare_with_ncu(Job("cuda:0", "m", folder, 28.0, time.perf_counter()))
    assert ncu.runs == 1
    found: dict[str, Any] = read_found(folder)["ncu"]
    return found


def why(found: dict[str, Any]) -> dict[str, str]:
    return {case: told["not_measured"] for case, told in found.items()}


def test_what_ncu_refuses_is_told_in_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --log-file its errors are in the file: stderr has the words of what it profiles alone."""
    words = "Failed to initialize the profiler: LibraryNotLoaded"
    log = f"==PROF== Connected to process 7\n==ERROR== {words}\n"
    ncu = Ncu(log, code=1, stderr="UserWarning: something else")
    assert why(found_with(ncu, tmp_path, monkeypatch)) == dict.fromkeys(CASES, words)


def test_one_that_hangs_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_with(Ncu("", hangs=True), tmp_path, monkeypatch)
    assert why(found) == dict.fromkeys(CASES, "ncu did not end within 28 s")


def test_a_target_that_dies_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = "==ERROR== The application returned an error code (1).\n"
    ncu = Ncu(log, code=1, stderr="ModuleNotFoundError: No module named 'triton'")
    found = found_with(ncu, tmp_path, monkeypatch)
    assert why(found) == dict.fromkeys(CASES, "ModuleNotFoundError: No module named 'triton'")


def test_kernels_are_those_of_the_case_whose_mark_they_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four cases one fails after its mark and one is not begun; two have figures."""
    weights, kv, standard, int4 = CASES
    (tmp_path / BEGUN).write_text(json.dumps([weights, kv, standard]))
    rows = ["spin_kernel(long)", "a", "b", "spin_kernel(long)", "c", "spin_kernel(long)", "d"]
    bytes_read = dict(zip("abcd", (600, 400, 5, 3000), strict=True))
    lines = [
        f'"{number}","7","{name}","10","{bytes_read.get(name, 99)}","0"\n'
        for number, name in enumerate(rows)
    ]
    for case, counted in ((weights, 1000), (standard, 2000)):
        cost_of(tmp_path, case).write_text(str(counted))
    error_of(tmp_path, kv).write_text("CompilationError: no")
    monkeypatch.setattr(
        StepCost,
        "model_validate_json",
        lambda text: SimpleNamespace(traffic=SimpleNamespace(required=int(text), total=0)),
    )
    found = found_with(Ncu(HEADER + "".join(lines)), tmp_path, monkeypatch)
    assert found[weights]["ratio"] == (600 + 400) / STEPS / 1000
    assert found[weights]["kernels_per_step"] == 2 / STEPS
    assert found[standard]["ratio"] == 3000 / STEPS / 2000
    assert found[kv] == {"not_measured": "CompilationError: no"}
    assert found[int4] == {"not_measured": "the time of this part was over"}


def test_the_target_goes_on_after_a_case_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def fail_once(case: str, *_: object) -> None:
        tried.append(case)
        if len(tried) == 2:
            raise ValueError("too large")

    monkeypatch.setattr(ncu_target, "_count", fail_once)
    ncu_target.main("cpu", "m", tmp_path, 60.0)
    assert tried == list(CASES)
    assert error_of(tmp_path, tried[1]).read_text() == "ValueError: too large"
    ncu_target.main("cpu", "m", tmp_path, 1.0)
    assert tried == list(CASES), "too little time is left for any"


def test_steps_of_two_layers_and_what_they_cost(tmp_path: Path) -> None:
    """The whole way on a CPU, for what needs no GPU: bytes of bf16 weights of two layers and a head."""
    ncu_target._count("weights", "cpu", "smollm2-135m", tmp_path, [])
    cost = StepCost.model_validate_json(cost_of(tmp_path, "weights").read_bytes())
    layer = 576 * (576 + 2 * 192) + 576 * 576 + 3 * 576 * 1536 + 2 * 576
    assert json.loads((tmp_path / BEGUN).read_text()) == ["weights"]
    expected = 2 * (2 * layer + 49152 * 576 + 576)
    assert cost.traffic.weights == pytest.approx(expected, rel=0.01)
