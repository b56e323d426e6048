"""How long repeats of the same work take, on the clock of the device that does it."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from llmprof.instruments.clock import CudaEventTimer, HostClock, HostTimer, Timer

Call = Callable[[], object]

_QUEUE_AHEAD_CYCLES = 2_000_000
"""About 1 ms on the device: the host enqueues a whole call before its first kernel starts, so that
launches cost nothing (the spin kernel of nvbandwidth)."""


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

    def __init__(self, device: str) -> None:
        self._device = device
        self._timer: Timer = (
            HostTimer(HostClock()) if device == "cpu" else CudaEventTimer(device, capacity=2)
        )

    def time_s(self, call: Call) -> float:
        self._timer.reset()
        if self._device != "cpu":
            self._hold_back()
        begin = self._timer.mark()
        call()
        end = self._timer.mark()
        self._timer.synchronize()
        return max(self._timer.elapsed_s(begin, end), 1e-9)

    def rate(self, call: Call, work: float) -> float:
        """`work` units per second of one call that does so many."""
        return work / self.time_s(call)

    def _hold_back(self) -> None:
        with torch.cuda.device(self._device):
            torch.cuda._sleep(_QUEUE_AHEAD_CYCLES)  # type: ignore[no-untyped-call]


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
