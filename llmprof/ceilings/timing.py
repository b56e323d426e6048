"""How long repeats of the same work take, on the clock of the device that does it."""

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from llmprof.instruments.clock import CudaEventTimer, HostClock, HostTimer, Timer
from llmprof.instruments.hold_back import hold_back
from llmprof.units import rounded

Call = Callable[[], object]

_STORED_DIGITS = 4
_HELD_BACK_S = 0.001
"""The host enqueues a whole call before its first kernel starts, so that launches cost nothing (the
spin kernel of nvbandwidth)."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Repeats of the same work, in units per second."""

    per_s: tuple[float, ...]

    @property
    def best(self) -> float:
        return max(self.per_s)

    @property
    def median(self) -> float:
        return statistics.median(self.per_s)

    @property
    def spread(self) -> float:
        """Interquartile range over median; 0 for a single repeat."""
        if len(self.per_s) < 2:
            return 0.0
        low, middle, high = statistics.quantiles(self.per_s, n=4, method="inclusive")
        return (high - low) / middle

    def ceiling(self, device: str) -> float:
        """Best on a CPU, where noise only slows; median on a GPU, whose clocks swing both ways."""
        return self.best if device == "cpu" else self.median


class Stopwatch:
    """Time of a call: wall time on a CPU; on a GPU device time, back to back, without launches."""

    def __init__(self, device: str, *, held_back_s: float = _HELD_BACK_S) -> None:
        """`held_back_s`: of a GPU, at least as long as the host takes to enqueue a call."""
        self._timer: Timer = (
            HostTimer(HostClock()) if device == "cpu" else CudaEventTimer(device, capacity=2)
        )
        self._hold_back = None if device == "cpu" else hold_back(device, held_back_s)

    def time_s(self, call: Call) -> float:
        self._timer.reset()
        if self._hold_back is not None:
            self._hold_back()
        begin = self._timer.mark()
        call()
        end = self._timer.mark()
        self._timer.synchronize()
        return max(self._timer.elapsed_s(begin, end), 1e-9)

    def rate(self, call: Call, work: float) -> float:
        """`work` units per second of one call that does so many."""
        return work / self.time_s(call)


def repeat(
    stopwatch: Stopwatch, call: Call, work: float, *, budget_s: float, at_least: int
) -> Rates:
    """Rates of one call, repeated until `budget_s` of host time is over."""
    return race(stopwatch, {"": call}, work, budget_s=budget_s, at_least=at_least)[""]


def race(
    stopwatch: Stopwatch,
    calls: Mapping[str, Call],
    work: float,
    *,
    budget_s: float,
    at_least: int,
) -> dict[str, Rates]:
    """Rates of rivals that do the same work, in turn, so that they share every disturbance."""
    rates: dict[str, list[float]] = {name: [] for name in calls}
    deadline = time.perf_counter() + budget_s
    rounds = 0
    while rounds < at_least or time.perf_counter() < deadline:
        for name, call in calls.items():
            rates[name].append(stopwatch.rate(call, work))
        rounds += 1
    return {name: Rates(tuple(per_s)) for name, per_s in rates.items()}


@dataclass(frozen=True, slots=True)
class Turns:
    """Calls of rivals in the order in which they were made."""

    calls: tuple[tuple[int, float], ...]
    """Number of the rival, and its units per second in this call."""

    def winner(self, device: str) -> tuple[int, float]:
        """The rival with the highest ceiling, and that ceiling."""
        rivals = {rival for rival, _ in self.calls}
        ceilings = {
            rival: Rates(tuple(rate for one, rate in self.calls if one == rival)).ceiling(device)
            for rival in rivals
        }
        best = max(ceilings, key=lambda rival: ceilings[rival])
        return best, ceilings[best]

    @property
    def stored(self) -> tuple[float, ...]:
        """Every call as run files keep it."""
        return stored_rates(rate for _, rate in self.calls)


def stored_rates(rates: Iterable[float]) -> tuple[float, ...]:
    """To the digits that run files keep of a single call."""
    return tuple(rounded(rate, _STORED_DIGITS) for rate in rates)


def take_turns(
    stopwatch: Stopwatch, rivals: Sequence[tuple[Call, float]], *, budget_s: float, most_calls: int
) -> Turns:
    """Rates of rivals (a call, and the work that it does) in turn, within `budget_s` of host time.

    Each is called once before anything is timed, outside the budget: after other work, caches and
    threads are not ready (a first product took 3 to 6 times as long as the next, and first reads
    got half of the bandwidth). Then each has a turn, however long that takes. From there on,
    whoever is likely to end within the budget has another, until nobody is; `most_calls` bounds all
    calls together.
    """
    for warm_up, _ in rivals:
        warm_up()
    deadline = time.perf_counter() + budget_s
    calls: list[tuple[int, float]] = []
    least_s: dict[int, float] = {}
    left_out = 0
    for turn in itertools.cycle(range(len(rivals))):
        begin_s = time.perf_counter()
        if turn in least_s and (len(calls) >= most_calls or begin_s + least_s[turn] > deadline):
            left_out += 1
            if left_out == len(rivals):
                break
            continue
        left_out = 0
        call, work = rivals[turn]
        calls.append((turn, stopwatch.rate(call, work)))
        least_s[turn] = min(time.perf_counter() - begin_s, least_s.get(turn, math.inf))
    return Turns(tuple(calls))
