"""Which rounds may be judged: the machine was ours and its clock stood still.

A rejected round stays in the record; it is counted and left out of the figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llmprof.schema.run import Contention, Round

MAX_RUN_QUEUE_FRACTION = 0.05
"""Of the worst thread where the system tells of each, else of all together: a parallel op ends with
its slowest thread, and waiting that is shared out among many is no smaller."""
MAX_STEAL_FRACTION = 0.05
MAX_QUOTA_USED_UP_FRACTION = 0.05
"""Of the periods of a control group (0.1 s each by default): in each the whole group stood still."""
MIN_CPU_PER_WALL = 0.95
"""Asked only where the scheduler does not tell how long threads waited: less CPU time than in other
rounds is then the one sign of a neighbour. Where it tells, a thread of the pool that went to sleep
between two ops is no sign of anything."""
MAX_CLOCK_DROP = 0.15
"""Below the upper quartile of the run's canaries. A neighbour on the same physical core costs the canary up to 12 %
on a quiet virtual machine (60 readings), and the live ceilings of the round slow down with it."""
MAX_REJECTED_FRACTION = 0.40
"""A phase with more rejected rounds than this is not judged."""


@dataclass(frozen=True, slots=True)
class RoundSelection:
    """Rounds to compute with, and why others were left out."""

    rounds: tuple[Round, ...]
    """The valid ones; every round where none is valid (nothing is judged then)."""
    reasons: dict[int, str]
    """Index of a rejected round -> what was wrong."""
    num_total: int

    @property
    def rejected_fraction(self) -> float:
        return len(self.reasons) / self.num_total if self.num_total else 0.0


def select_rounds(rounds: Sequence[Round]) -> RoundSelection:
    """Leave out rounds in which the machine was shared, throttled or used by others."""
    best_cpu_per_wall = _best_cpu_per_wall(rounds)
    usual_canary_hz = _usual_canary_hz(rounds)
    reasons = {}
    for one in rounds:
        reason = (
            _contended(one.contention, best_cpu_per_wall)
            or _slowed(one.contention, usual_canary_hz)
            or _foreign(one)
        )
        if reason:
            reasons[one.index] = reason
    valid = tuple(one for one in rounds if one.index not in reasons)
    return RoundSelection(rounds=valid or tuple(rounds), reasons=reasons, num_total=len(rounds))


def _contended(contention: Contention, best_cpu_per_wall: float | None) -> str | None:
    delays = [
        one
        for one in (contention.worst_thread_fraction, contention.run_queue_fraction)
        if one is not None
    ]
    if any(one > MAX_RUN_QUEUE_FRACTION for one in delays):
        return "its threads waited for a CPU"
    steal = contention.steal_fraction
    if steal is not None and steal > MAX_STEAL_FRACTION:
        return "the hypervisor gave the CPU to others"
    used_up = contention.quota_used_up_fraction
    if used_up is not None and used_up > MAX_QUOTA_USED_UP_FRACTION:
        return "the CPU quota of its control group was used up"
    share = contention.cpu_per_wall
    if delays or share is None or best_cpu_per_wall is None or best_cpu_per_wall < MIN_CPU_PER_WALL:
        return None  # nothing shows that these kernels use every thread all the time
    if share < MIN_CPU_PER_WALL * best_cpu_per_wall:
        return "its threads got less CPU time than in other rounds"
    return None


def _slowed(contention: Contention, usual_canary_hz: float | None) -> str | None:
    canary = contention.canary_hz
    if canary is None or usual_canary_hz is None:
        return None
    if canary < (1 - MAX_CLOCK_DROP) * usual_canary_hz:
        return "the clock was lower than in other rounds"
    return None


def _foreign(one: Round) -> str | None:
    if one.telemetry is not None and one.telemetry.foreign_processes:
        return "another process used the device"
    return None


def _best_cpu_per_wall(rounds: Sequence[Round]) -> float | None:
    known = [one.contention.cpu_per_wall for one in rounds]
    return max((value for value in known if value is not None), default=None)


def _usual_canary_hz(rounds: Sequence[Round]) -> float | None:
    """Upper quartile: a drop that lasts for half of the run must not move its own yardstick."""
    known = [one.contention.canary_hz for one in rounds if one.contention.canary_hz is not None]
    return float(np.quantile(known, 0.75)) if known else None
