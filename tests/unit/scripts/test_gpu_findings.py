"""What lies in the folder of the check, whenever it is ended."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts.gpu import outcomes_of_tests
from scripts.gpu.figures import figures
from scripts.gpu.job import Job, read_found, write_whole
from scripts.gpu.lost_device import LOST
from scripts.gpu.outcomes_of_tests import TestOutcomes
from scripts.gpu.schedule import Outcome
from scripts.gpu.summary import write_summary


def a_job(folder: Path) -> Job:
    return Job("cuda:0", "llama-3.1-8b", folder, 60.0, 0.0)


def report(name: str, when: str, outcome: str) -> SimpleNamespace:
    return SimpleNamespace(nodeid=name, when=when, outcome=outcome, passed=outcome == "passed")


def item(name: str) -> SimpleNamespace:
    return SimpleNamespace(nodeid=name)


def test_a_finding_is_whole_or_as_it_was_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed while it writes loses that finding, and breaks no other."""
    job = a_job(tmp_path)
    job.found("gpm", {"user": 0})

    def killed(self: Path, text: str) -> int:
        with self.open("w") as file:
            file.write(text[:3])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        job.found("gpm", {"user": 1})
    assert read_found(tmp_path) == {"gpm": {"user": 0}}


def test_each_test_is_written_down_as_it_ends(tmp_path: Path) -> None:
    """Its set-up says nothing but for a failure or a skip; the worst of its reports counts."""
    outcomes = TestOutcomes(a_job(tmp_path))
    outcomes.pytest_collection_modifyitems([item(f"a.py::{number}") for number in range(5)])
    for one in (
        report("a.py::fine", "setup", "passed"),
        report("a.py::fine", "call", "passed"),
        report("a.py::wrong", "call", "failed"),
        report("a.py::wrong", "teardown", "passed"),
        report("a.py::absent", "setup", "skipped"),
        report("a.py::leaves", "call", "passed"),
        report("a.py::leaves", "teardown", "failed"),
    ):
        outcomes.pytest_runtest_logreport(one)
    assert read_found(tmp_path)["tests"] == {
        "collected": 5,
        "passed": 1,
        "failed": ["a.py::wrong", "a.py::leaves"],
        "skipped": ["a.py::absent"],
        "ended": {
            "a.py::fine": "passed",
            "a.py::wrong": "failed",
            "a.py::absent": "skipped",
            "a.py::leaves": "failed",
        },
    }
    (figure, *_) = figures(read_found(tmp_path))
    assert (figure.value, figure.status) == (0.2, "missed")
    assert "1 of 5 passed, 1 skipped; wrong, leaves" in figure.words


def test_tests_after_one_that_lost_the_gpu_run_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that follow an illegal address would fail with it, and none of them is wrong."""
    lost: list[str] = []
    monkeypatch.setattr(outcomes_of_tests, "is_lost", lambda device: bool(lost))
    names, run = [f"a.py::{number}" for number in range(6)], []

    def process() -> None:
        outcomes = TestOutcomes(a_job(tmp_path), "tests-0", number=0, of=2)
        items = [item(name) for name in names]
        outcomes.pytest_collection_modifyitems(items)
        for one in items:
            run.append(one.nodeid)
            wrong = one.nodeid == "a.py::2"
            lost[:] = ["lost"] * wrong
            outcomes.pytest_runtest_logreport(
                report(one.nodeid, "call", "failed" if wrong else "passed")
            )

    with pytest.raises(pytest.exit.Exception, match=r"lost at a\.py::2") as stop:
        process()
    assert stop.value.returncode == LOST
    lost.clear()
    process()
    assert run == ["a.py::0", "a.py::2", "a.py::4"]
    (figure, *_) = figures(read_found(tmp_path))
    assert "2 of 3 passed, 0 skipped; 2" in figure.words


def test_a_summary_of_what_there_is_so_far(tmp_path: Path) -> None:
    about = {"version": "1", "torch": "2.11", "device": "cuda:0", "model": "m", "dry_run": False}
    text = write_summary(tmp_path, about, [Outcome("tests", "out of time", 54.0, "hung")])
    assert "tests: out of time, 54 s: hung" in text
    assert "**met**" not in text
    assert json.loads((tmp_path / "summary.json").read_text())["parts"][0]["name"] == "tests"
    assert (tmp_path / "summary.md").read_text() == text


def test_files_that_are_being_written_are_no_findings(tmp_path: Path) -> None:
    write_whole(tmp_path / "found" / "ncu.json", "{}")
    (tmp_path / "found" / ".ncu.json.new").write_text('{"half')
    assert read_found(tmp_path) == {"ncu": {}}
