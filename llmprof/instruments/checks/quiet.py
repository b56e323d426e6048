"""Check that the machine is ours right now."""

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor

from llmprof import units
from llmprof.instruments.canary import Canary
from llmprof.instruments.checks.outcome import ok, warn
from llmprof.instruments.contention import ContentionMeter
from llmprof.schema.diagnosis import Check
from llmprof.schema.run import Contention

_WATCH_S = 0.25
_BLOCK = bytes(1 << 20)
_CONTENDED = 0.05
"""Share of the time that runnable threads waited: a round above it is rejected."""
_CLOCK_DROP = 0.15
"""As that of a round that is rejected for its clock."""
_CLOCK_READINGS = 10
"""Of 7 ms each: within the time for which the other cores are busy."""


def check_quiet(threads: int) -> Check:
    """Keep every usable core busy for a quarter of a second and see how long threads waited."""
    meter = ContentionMeter(threads)
    deadline_s = time.perf_counter() + _WATCH_S
    with ThreadPoolExecutor(threads) as pool:
        meter.start()
        busy = [pool.submit(_hash_until, deadline_s) for _ in range(threads)]
        for future in busy:
            future.result()
        contention = meter.stop()
    return judge_quiet(contention)


def check_clock_under_load(threads: int) -> Check | None:
    """Whether the clock holds while every usable core works; None without numba for the witness.

    A quarter of a second shows a limit of power or of a shared core's clock, not one of heat.
    """
    try:
        canary = Canary()
    except ImportError:
        return None
    idle_hz = canary.read_hz()
    deadline_s = time.perf_counter() + _WATCH_S
    with ThreadPoolExecutor(threads) as pool:
        busy = [pool.submit(_hash_until, deadline_s) for _ in range(threads - 1)]
        loaded_hz = [canary.read_hz() for _ in range(_CLOCK_READINGS)]
        for future in busy:
            future.result()
    return judge_clock(idle_hz, max((hz for hz in loaded_hz if hz is not None), default=None))


def judge_clock(idle_hz: float | None, loaded_hz: float | None) -> Check:
    """By additions in a chain per second of CPU time, with the other cores idle and busy."""
    name = "CPU clock under load"
    if idle_hz is None or loaded_hz is None:
        return warn(name, "CPU time stands still here: a lower clock would not be seen")
    drop = 1 - loaded_hz / idle_hz
    rates = f"{units.si(loaded_hz, 'Hz')} of additions in a chain, {units.si(idle_hz, 'Hz')} alone"
    if drop > _CLOCK_DROP:
        return warn(
            name,
            f"the clock falls by {units.percent(drop)} when every core works ({rates}): ceilings "
            "and steps are measured under the same load, single-threaded code is not",
            "Check cooling, power limits, and whether two usable cores are one physical core",
        )
    return ok(name, rates)


def judge_quiet(contention: Contention) -> Check:
    waited = contention.run_queue_fraction
    if waited is None:
        return warn(
            "quiet machine",
            "this system does not tell how long threads wait for a core: contention shows only as "
            "a wider spread",
        )
    detail = f"own threads waited {units.percent(waited)} of the time for a core"
    if contention.pressure_fraction is not None:
        detail += f"; some task of the system, {units.percent(contention.pressure_fraction)}"
    if contention.steal_fraction:
        detail += f"; the hypervisor took {units.percent(contention.steal_fraction)}"
    if contention.quota_used_up_fraction:
        used_up = units.percent(contention.quota_used_up_fraction)
        detail += f"; the CPU quota was used up in {used_up} of its periods"
    detail += _cpu_time_words(contention)
    if waited > _CONTENDED:
        return warn(
            "quiet machine",
            detail,
            "Stop other programs, or set execution.threads below the number of free cores",
        )
    return ok("quiet machine", detail)


def _cpu_time_words(contention: Contention) -> str:
    got = contention.cpu_per_wall
    return "" if got is None else f"; they got {units.percent(got)} of their cores' time"


def _hash_until(deadline_s: float) -> None:
    """Work that holds a core without the interpreter's lock: hashlib releases it for a block."""
    while time.perf_counter() < deadline_s:
        hashlib.sha256(_BLOCK).digest()
