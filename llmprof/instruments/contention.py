"""Whether the machine was ours: what the scheduler says about this process and about everyone."""

import time
from dataclasses import dataclass
from pathlib import Path

from llmprof.instruments.canary import Canary
from llmprof.instruments.clock import Clock, HostClock
from llmprof.instruments.control_group import quota_periods
from llmprof.instruments.system_file import read_text
from llmprof.schema.run import Contention

WORKING_FRACTION = 0.10
"""Of the wall time that a thread ran or wanted to: below it, it is a sampler or idles in a pool, and no
barrier waits for it."""


@dataclass(frozen=True, slots=True)
class _ThreadTime:
    """Nanoseconds of one thread."""

    on_cpu_ns: int
    waited_ns: int
    """It was runnable and had to wait for a core."""

    def since(self, earlier: "_ThreadTime") -> "_ThreadTime":
        return _ThreadTime(self.on_cpu_ns - earlier.on_cpu_ns, self.waited_ns - earlier.waited_ns)


@dataclass(frozen=True, slots=True)
class _Counters:
    """Running totals of the kernel at one moment; None where this system has no such counter."""

    wall_ns: int
    cpu_ns: int
    threads: dict[str, _ThreadTime] | None
    """By thread id."""
    steal_ticks: tuple[int, int] | None
    """Stolen ticks and all ticks, of every core."""
    pressure_us: int | None
    quota_periods: dict[str, tuple[int, int]] | None
    """Of each control group with a limit: periods in which it was used up, and all periods."""


class ContentionMeter:
    """Contention of one round: `start()`, the round, `stop()`.

    Judge by the own run-queue delay: it counts only what this process lost, and the worst thread's
    is what a parallel op ends with. Pressure is of the whole system, steal only of the hypervisor,
    and both have coarse clocks (10 ms for steal).
    Source: Linux kernel documentation, sched-stats, accounting/psi and proc(5).
    """

    def __init__(
        self,
        threads: int,
        *,
        canary: Canary | None = None,
        clock: Clock | None = None,
        root: Path = Path("/"),
    ) -> None:
        self._threads = threads
        self._canary = canary
        self._clock = clock or HostClock()
        self._root = root
        self._before = self._counters()

    def start(self) -> None:
        self._before = self._counters()

    def stop(self) -> Contention:
        """What happened since `start`; reads the canary afterwards, in about 8 ms."""
        before, after = self._before, self._counters()
        wall_ns = after.wall_ns - before.wall_ns
        thread_ns = wall_ns * self._threads
        threads = _elapsed(before, after)
        return Contention(
            run_queue_fraction=_fraction(_waited_ns(threads), thread_ns),
            worst_thread_fraction=_fraction(_worst_wait_ns(threads, wall_ns), wall_ns),
            cpu_per_wall=_fraction(after.cpu_ns - before.cpu_ns, thread_ns),
            steal_fraction=_steal_fraction(before, after),
            pressure_fraction=_fraction(_stalled_ns(before, after), wall_ns),
            canary_hz=self._canary.read_hz() if self._canary else None,
            quota_used_up_fraction=_quota_used_up_fraction(before, after),
        )

    def _counters(self) -> _Counters:
        proc = self._root / "proc"
        threads = _thread_times(proc)
        steal_ticks = _steal_ticks(proc)
        pressure_us = _pressure_us(proc)
        periods = quota_periods(self._root)
        return _Counters(
            self._clock.now_ns(), time.process_time_ns(), threads, steal_ticks, pressure_us, periods
        )


def _thread_times(proc: Path) -> dict[str, _ThreadTime] | None:
    """First two fields of each thread's schedstat; a thread that ends meanwhile is left out."""
    times: dict[str, _ThreadTime] = {}
    for path in (proc / "self" / "task").glob("*/schedstat"):
        text = read_text(path)
        if text is not None:
            on_cpu_ns, waited_ns = map(int, text.split()[:2])
            times[path.parent.name] = _ThreadTime(on_cpu_ns, waited_ns)
    return times or None


def _steal_ticks(proc: Path) -> tuple[int, int] | None:
    """First line of stat: user nice system idle iowait irq softirq steal (guest is in user)."""
    text = read_text(proc / "stat")
    ticks = [int(field) for field in text.splitlines()[0].split()[1:9]] if text else []
    return (ticks[7], sum(ticks)) if len(ticks) == 8 else None


def _pressure_us(proc: Path) -> int | None:
    """`some avg10=... total=123`: time in which at least one task of the system waited."""
    text = read_text(proc / "pressure" / "cpu")
    if not text or not text.startswith("some "):
        return None
    return int(text.splitlines()[0].rpartition("total=")[2])


def _elapsed(before: _Counters, after: _Counters) -> tuple[_ThreadTime, ...] | None:
    """What each thread that still lives did meanwhile; a new one started from nothing."""
    if before.threads is None or after.threads is None:
        return None
    return tuple(
        now.since(before.threads.get(thread, _ThreadTime(0, 0)))
        for thread, now in after.threads.items()
    )


def _waited_ns(threads: tuple[_ThreadTime, ...] | None) -> int | None:
    return None if threads is None else sum(one.waited_ns for one in threads)


def _worst_wait_ns(threads: tuple[_ThreadTime, ...] | None, wall_ns: int) -> int | None:
    """Of the threads that worked; None where none did, since then nothing says how long one waited."""
    waits = [
        one.waited_ns
        for one in threads or ()
        if one.on_cpu_ns + one.waited_ns >= WORKING_FRACTION * wall_ns
    ]
    return max(waits, default=None)


def _steal_fraction(before: _Counters, after: _Counters) -> float | None:
    if before.steal_ticks is None or after.steal_ticks is None:
        return None
    stolen, total = (b - a for a, b in zip(before.steal_ticks, after.steal_ticks, strict=True))
    return _fraction(stolen, total)


def _stalled_ns(before: _Counters, after: _Counters) -> int | None:
    if before.pressure_us is None or after.pressure_us is None:
        return None
    return (after.pressure_us - before.pressure_us) * 1000


def _quota_used_up_fraction(before: _Counters, after: _Counters) -> float | None:
    """Of the tightest group; None without a limit, and where no period has ended meanwhile."""
    if before.quota_periods is None or after.quota_periods is None:
        return None
    shares = []
    for group, (used_up, periods) in after.quota_periods.items():
        used_up_before, periods_before = before.quota_periods.get(group, (0, 0))
        shares.append(_fraction(used_up - used_up_before, periods - periods_before))
    return max((share for share in shares if share is not None), default=None)


def _fraction(part: int | None, whole: int) -> float | None:
    return None if part is None or whole <= 0 else part / whole
