import sys

import pytest

from llmprof.instruments.checks.quiet import (
    check_clock_under_load,
    check_quiet,
    judge_clock,
    judge_quiet,
)
from llmprof.schema.run import Contention


def a_contention(
    waited: float | None, pressure: float | None = None, steal: float | None = None
) -> Contention:
    return Contention(
        run_queue_fraction=waited,
        cpu_per_wall=None,
        steal_fraction=steal,
        pressure_fraction=pressure,
        canary_hz=None,
    )


@pytest.mark.parametrize(("waited", "status"), [(0.0, "ok"), (0.049, "ok"), (0.051, "warn")])
def test_own_waiting_decides(waited: float, status: str) -> None:
    assert judge_quiet(a_contention(waited, pressure=0.9)).status == status


def test_pressure_and_steal_are_told_and_decide_nothing() -> None:
    check = judge_quiet(a_contention(0.01, pressure=0.97, steal=0.25))
    assert check.status == "ok"
    assert "97 %" in check.detail
    assert "25 %" in check.detail


def test_a_system_that_does_not_tell_is_not_called_quiet() -> None:
    check = judge_quiet(a_contention(None))
    assert check.status == "warn"
    assert "does not tell" in check.detail


def test_the_threads_are_kept_busy_while_they_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmprof.instruments.checks.quiet._WATCH_S", 0.02)
    assert check_quiet(2).name == "quiet machine"


def test_cpu_time_and_a_quota_that_is_used_up_are_told() -> None:
    short = a_contention(0.0).model_copy(
        update={"cpu_per_wall": 0.75, "quota_used_up_fraction": 0.5}
    )
    detail = judge_quiet(short).detail
    assert "got 75 % of their cores" in detail
    assert "quota was used up in 50 % of its periods" in detail


@pytest.mark.parametrize(
    ("idle_hz", "loaded_hz", "status"),
    [(1e9, 1e9, "ok"), (1e9, 0.86e9, "ok"), (1e9, 0.84e9, "warn"), (1e9, None, "warn")],
)
def test_a_clock_that_falls_under_load(
    idle_hz: float, loaded_hz: float | None, status: str
) -> None:
    check = judge_clock(idle_hz, loaded_hz)
    assert check.status == status
    if loaded_hz == 0.84e9:
        assert "16 %" in check.detail
        assert check.remedy


def test_the_clock_is_watched_while_the_other_cores_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmprof.instruments.checks.quiet._WATCH_S", 0.02)
    check = check_clock_under_load(2)
    assert check is not None
    assert check.name == "CPU clock under load"


def test_without_numba_no_clock_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    assert check_clock_under_load(2) is None
