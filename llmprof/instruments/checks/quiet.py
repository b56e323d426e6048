"""Check that the machine is ours right now."""

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor

from llmprof import units
from llmprof.instruments.checks.outcome import ok, warn
from llmprof.instruments.contention import ContentionMeter
from llmprof.schema.diagnosis import Check
from llmprof.schema.run import Contention

_WATCH_S = 0.25
_BLOCK = bytes(1 << 20)
_CONTENDED = 0.05
"""Share of the time that runnable threads waited: a round above it is rejected."""


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
    if waited > _CONTENDED:
        return warn(
            "quiet machine",
            detail,
            "Stop other programs, or set execution.threads below the number of free cores",
        )
    return ok("quiet machine", detail)


def _hash_until(deadline_s: float) -> None:
    """Work that holds a core without the interpreter's lock: hashlib releases it for a block."""
    while time.perf_counter() < deadline_s:
        hashlib.sha256(_BLOCK).digest()
