import pytest

from llmprof.instruments.checks.quiet import check_quiet, judge_quiet
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
