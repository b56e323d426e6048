"""Parts of the GPU check: what fails, hangs or finds no time left loses nothing of the others."""

import os
import sys
import time
from pathlib import Path

from scripts.gpu.lost_device import LOST
from scripts.gpu.schedule import Outcome, Part, run_parts, run_process, run_until_ended
from tests.fakes import FakeClock


def run(parts: list[Part], takes: dict[str, float], budget_s: float) -> list[Outcome]:
    clock = FakeClock()

    def pretend(part: Part, seconds: float) -> tuple[int | None, str]:
        wanted = takes[part.name]
        clock.advance(round(min(wanted, seconds) * 1e9))
        if wanted > seconds:
            return None, "still at it"
        return (1, "broken") if part.name == "broken" else (0, "")

    return list(run_parts(parts, budget_s, pretend, now_s=lambda: clock.now_ns() / 1e9))


def test_one_that_hangs_or_breaks_loses_none_of_the_others() -> None:
    parts = [Part("hangs", 10, 5), Part("broken", 10, 5), Part("fine", 10, 5)]
    found = run(parts, {"hangs": 99, "broken": 2, "fine": 3}, 30)
    assert [one.status for one in found] == ["out of time", "failed", "done"]
    assert [one.seconds for one in found] == [10, 2, 3]


def test_time_that_is_left_is_the_next_ones_and_no_budget_is_taken() -> None:
    parts = [Part("short", 10, 5), Part("long", 10, 5), Part("last", 10, 5)]
    found = run(parts, {"short": 4, "long": 99, "last": 10}, 30)
    assert [one.seconds for one in found] == [4, 16, 10]
    assert found[-1].status == "done"


def test_what_no_longer_fits_is_skipped_and_named() -> None:
    parts = [Part("long", 50, 5), Part("large", 30, 20), Part("small", 30, 5)]
    found = run(parts, {"long": 45, "large": 25, "small": 9}, 60)
    assert [(one.name, one.status) for one in found] == [
        ("long", "done"),
        ("large", "skipped"),
        ("small", "done"),
    ]
    assert "15 s were left, and it needs 20 s" in found[1].words


def test_a_process_that_hangs_is_ended_with_its_own_children(tmp_path: Path) -> None:
    log, mark = tmp_path / "log.txt", tmp_path / "mark"
    child = f"import time, pathlib; time.sleep(4); pathlib.Path({str(mark)!r}).touch()"
    code = (
        f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]);"
        "print('begun', flush=True); time.sleep(60)"
    )
    status, words = run_process([sys.executable, "-c", code], 2.0, log, {})
    assert (status, words) == (None, "begun")
    assert not mark.exists()


def test_the_last_line_of_the_log_comes_back(tmp_path: Path) -> None:
    code = "import sys; print('one', flush=True); sys.exit('two')"
    assert run_process([sys.executable, "-c", code], 60.0, tmp_path / "log", {}) == (1, "two")


def test_what_a_process_leaves_running_ends_with_it(tmp_path: Path) -> None:
    """Also where it ends by itself: nothing may hold the GPU while the next part measures."""
    child = "import time; time.sleep(60)"
    code = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {child!r}]).pid)"
    status, pid = run_process([sys.executable, "-c", code], 60.0, tmp_path / "log", {})
    assert status == 0
    deadline_s = time.perf_counter() + 30
    while not _is_gone(int(pid)):
        assert time.perf_counter() < deadline_s
        time.sleep(0.01)


def test_a_part_is_a_group_of_this_session(tmp_path: Path) -> None:
    """Who kills this process for good ends its session, and the part must be in it."""
    code = "import os; print(os.getsid(0), os.getpgid(0) == os.getpid())"
    status, words = run_process([sys.executable, "-c", code], 60.0, tmp_path / "log", {})
    assert (status, words) == (0, f"{os.getsid(0)} True")


def _is_gone(pid: int) -> bool:
    """Or about to be reaped by whoever took it over."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_who_lost_the_gpu_goes_on_in_another_process_in_the_time_that_is_left() -> None:
    clock, given = FakeClock(), []

    def lose_it_twice(left_s: float) -> tuple[int | None, str]:
        given.append(left_s)
        clock.advance(round(5e9))
        return (LOST, "lost") if len(given) < 3 else (0, "")

    assert run_until_ended(lose_it_twice, 60.0, now_s=lambda: clock.now_ns() / 1e9) == (0, "")
    assert given == [60, 55, 50]
    given.clear()
    assert run_until_ended(lose_it_twice, 12.0, now_s=lambda: clock.now_ns() / 1e9)[0] == LOST
    assert given == [12], "7 s are too few to begin again"
