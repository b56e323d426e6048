"""Which pairs were spoiled by the machine: by its own evidence, never by how long an arm took."""

from collections.abc import Sequence
from statistics import median
from typing import Final

from llmprof.analysis.caveats import THROTTLING
from llmprof.analysis.validity import MAX_CLOCK_DROP
from llmprof.schema.run import Contention, Round

MAX_WAIT_FRACTION: Final = 0.10
"""Of the worst thread. Twice what a run allows: what both arms suffer alike cancels in their ratio,
and a pair that is lost has to be measured again."""
MAX_STEAL_FRACTION: Final = 0.10
_SIBLING = 1
"""The other arm's process holds the device too."""


def usual_canary_hz(rounds: Sequence[Round]) -> float | None:
    """Median over all rounds of both arms so far; None where the clock cannot be watched."""
    known = [one.contention.canary_hz for one in rounds if one.contention.canary_hz is not None]
    return median(known) if known else None


def why_spoiled(turns: Sequence[Sequence[Round]], usual_hz: float | None) -> str | None:
    """What happened in one of a pair's turns, named for people; None for a valid pair.

    A turn is spoiled where most of its rounds are: its value is their median.
    """
    for rounds in turns:
        found = [reason for one in rounds if (reason := _reason(one, usual_hz)) is not None]
        if 2 * len(found) >= len(rounds):
            return found[0]
    return None


def _reason(one: Round, usual_hz: float | None) -> str | None:
    return _contended(one.contention, usual_hz) or _on_the_device(one)


def _contended(contention: Contention, usual_hz: float | None) -> str | None:
    waited = (contention.worst_thread_fraction, contention.run_queue_fraction)
    if any(one is not None and one > MAX_WAIT_FRACTION for one in waited):
        return "its threads waited for a CPU"
    steal, canary = contention.steal_fraction, contention.canary_hz
    if steal is not None and steal > MAX_STEAL_FRACTION:
        return "the hypervisor gave the CPU to others"
    if canary is not None and usual_hz is not None and canary < (1 - MAX_CLOCK_DROP) * usual_hz:
        return "the clock was lower than in other rounds"
    return None


def _on_the_device(one: Round) -> str | None:
    telemetry = one.telemetry
    if telemetry is None:
        return None
    if (telemetry.foreign_processes or 0) > _SIBLING:
        return "another process used the device"
    held = [reason for reason in telemetry.event_reasons if reason in THROTTLING]
    return f"the device held its clock down: {held[0].replace('_', ' ')}" if held else None
