"""What the device's own counters say about the rounds: energy per token, clocks held back."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from llmprof import units
from llmprof.analysis.statistics import median_estimate
from llmprof.analysis.tokens import tokens_by_step
from llmprof.schema.measurement import Caveat, Estimate
from llmprof.schema.run import EnergyWindow, Round

NOTABLE_SHARE: Final = 0.10
"""Of a round that the clock was held back: below it, ceilings beside the round tell enough."""
ENERGY_STEP_S: Final = 0.1
"""Longest time between two steps of the energy counter: at each end of an interval it may be as far
behind, and what both ends leave open together is the power of so long."""
POWER_ERROR: Final = 0.05
"""Of one reading of power (nvml.h, nvmlDeviceGetPowerUsage): readings in a row share it."""
NOTABLE_FREED_BYTES: Final = 256 * 2**20
"""Far above what drivers and library workspaces move between two rounds."""
_WORTH_SAYING: Final = (
    *("nvml", "sm_clock_hz", "power_w", "temperature_celsius", "memory_used_bytes"),
    *("event_reasons", "foreign_processes"),
)
"""What a judgement of the rounds would rest on. GPM is of new GPUs alone, and doctor tells of it."""


def energy_per_token(
    rounds: Sequence[Round], window: EnergyWindow | None = None
) -> Estimate | None:
    """Joules of the whole device per token, prompt and output together; None without a counter.

    Idle power is in it, and so is every other process on the device. Of `window` where each round is
    too short for the counter: its interval is what the counter's steps leave open, or what readings of
    power do.
    """
    per_token = []
    for one in rounds:
        tokens = sum(tokens_by_step(one))
        if one.telemetry is not None and one.telemetry.energy_j and tokens:
            per_token.append(one.telemetry.energy_j / tokens)
    if not per_token and window is not None:
        return _of_window(rounds, window)
    return median_estimate(per_token) if per_token else None


def _of_window(rounds: Sequence[Round], window: EnergyWindow) -> Estimate | None:
    """Every round of a workload has the same tokens, so the window's are those of as many rounds."""
    tokens = median(sum(tokens_by_step(one)) for one in rounds) if rounds else 0
    if not tokens or not window.energy_j:
        return None
    per_token = window.energy_j / (window.rounds * tokens)
    off = min(1.0, ENERGY_STEP_S / window.interval_s)
    if window.power_samples is not None:
        off = POWER_ERROR
    return Estimate(
        point=per_token,
        low=per_token * (1 - off),
        high=per_token * (1 + off),
        confidence=0.0,
        num_samples=1,
    )


def telemetry_caveats(rounds: Sequence[Round]) -> Iterable[Caveat]:
    yield from held_back_caveats(rounds)
    yield from _unread(rounds)
    yield from _memory_freed(rounds)


def _unread(rounds: Sequence[Round]) -> Iterable[Caveat]:
    """Sensors that no round could read; what a short round alone lacks is no news."""
    telemetry = [one.telemetry for one in rounds if one.telemetry is not None]
    if not telemetry:
        return
    fields: dict[str, list[str]] = {}
    for name, why in telemetry[-1].missing.items():
        if name in _WORTH_SAYING and all(name in one.missing for one in telemetry):
            fields.setdefault(why, []).append(name)
    for why, names in fields.items():
        yield Caveat(
            code="telemetry",
            message=f"not read from the device: {', '.join(names)} ({why})",
            remedy="See `llmprof doctor`.",
        )


def _memory_freed(rounds: Sequence[Round]) -> Iterable[Caveat]:
    """Of a run whose own allocations stand still: what is freed was another process's."""
    known = [one.telemetry.memory_used_bytes for one in rounds if one.telemetry is not None]
    used = [one for one in known if one is not None]
    freed = max((before - after for before, after in pairwise(used)), default=0)
    if freed > NOTABLE_FREED_BYTES:
        yield Caveat(
            code="memory-freed",
            message=f"{units.byte_count(freed)} of device memory became free between two rounds, "
            "and not by this run: another process was using the device",
            remedy="Stop it: it had its share of bandwidth as well.",
        )


def held_back_caveats(rounds: Sequence[Round]) -> Iterable[Caveat]:
    """By cause, the rounds in which the clock was held back for more than a tenth of the time."""
    shares: dict[str, list[float]] = {}
    for one in rounds:
        if one.telemetry is not None and one.telemetry.interval_s:
            for cause, held_s in one.telemetry.held_back_s.items():
                shares.setdefault(cause, []).append(held_s / one.telemetry.interval_s)
    for cause, of_cause in shares.items():
        notable = [share for share in of_cause if share > NOTABLE_SHARE]
        if notable:
            yield Caveat(
                code="held-back",
                message=f"{cause} held the clock back in {len(notable)} of {len(of_cause)} rounds, "
                f"for up to {units.percent(max(notable))} of the time (the device's own counter)",
                remedy="Check cooling and the power limit; the ceilings beside each round saw the "
                "same clock",
            )
