from collections.abc import Sequence

import pytest

from llmprof.analysis.validity import select_rounds
from llmprof.schema.run import Contention, DeviceTelemetry, Round
from tests.records import QUIET, a_run_record


def _rounds(contention: Sequence[Contention]) -> tuple[Round, ...]:
    return a_run_record(rounds=len(contention), contention=contention).rounds


def _with(**changes: float | None) -> Contention:
    return QUIET.model_copy(update=changes)


def _untold(**changes: float) -> Contention:
    """On a system without the scheduler's account."""
    return _with(run_queue_fraction=None, worst_thread_fraction=None, **changes)


def test_quiet_rounds_are_all_kept() -> None:
    selection = select_rounds(_rounds([QUIET] * 4))
    assert len(selection.rounds) == 4
    assert selection.rejected_fraction == 0


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (_with(run_queue_fraction=0.06), "waited for a CPU"),
        (_with(run_queue_fraction=0.02, worst_thread_fraction=0.08), "waited for a CPU"),
        (_with(steal_fraction=0.2), "hypervisor"),
        (_untold(cpu_per_wall=0.80), "less CPU time"),
        (_with(canary_hz=2.5e9), "clock"),
    ],
)
def test_a_bad_round_is_left_out_with_its_reason(bad: Contention, reason: str) -> None:
    """CPU time is asked only where the scheduler does not tell how long threads waited."""
    selection = select_rounds(_rounds([QUIET, QUIET, bad, QUIET]))
    assert [one.index for one in selection.rounds] == [0, 1, 3]
    assert reason in selection.reasons[2]
    assert selection.rejected_fraction == 0.25


def test_a_thread_that_sleeps_is_no_contention_where_the_scheduler_says_nobody_waited() -> None:
    selection = select_rounds(_rounds([QUIET, QUIET, _with(cpu_per_wall=0.80), QUIET]))
    assert not selection.reasons


def test_idle_threads_are_no_contention_where_no_round_used_them_all() -> None:
    """A single-threaded kernel, or a host that sleeps, has little CPU time on a quiet machine."""
    selection = select_rounds(_rounds([_with(cpu_per_wall=share) for share in (0.5, 0.7, 0.6)]))
    assert not selection.reasons


def test_a_clock_that_drops_for_half_of_the_run_is_seen() -> None:
    slow = _with(canary_hz=2.2e9)
    selection = select_rounds(_rounds([QUIET] * 4 + [slow] * 4))
    assert set(selection.reasons) == {4, 5, 6, 7}


def test_pressure_alone_rejects_nothing() -> None:
    """It is the whole system's, not ours."""
    assert not select_rounds(_rounds([_with(pressure_fraction=0.9)] * 3)).reasons


def test_what_the_system_does_not_tell_rejects_nothing() -> None:
    unknown = Contention(
        run_queue_fraction=None,
        cpu_per_wall=None,
        steal_fraction=None,
        pressure_fraction=None,
        canary_hz=None,
        worst_thread_fraction=None,
    )
    assert not select_rounds(_rounds([unknown] * 3)).reasons


def test_another_process_on_the_device_rejects_the_round() -> None:
    first, *others = _rounds([QUIET] * 3)
    shared = first.model_copy(update={"telemetry": DeviceTelemetry(foreign_processes=1)})
    assert "another process" in select_rounds([shared, *others]).reasons[0]


def test_figures_remain_where_every_round_is_bad() -> None:
    selection = select_rounds(_rounds([_with(run_queue_fraction=0.5)] * 3))
    assert len(selection.rounds) == 3
    assert selection.rejected_fraction == 1
