"""Energy of a GPU that has no counter of it: its power, read again and again, times the time.

An estimate, and never in place of a counter. Source: nvml.h, nvmlDeviceGetPowerUsage: within 5 %, and an
average over the last second on GPUs from Ampere on, so the work must have run for as long before.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

PERIOD_S: Final = 0.050
AVERAGED_S: Final = 1.0
"""That one reading is about."""


@dataclass(frozen=True, slots=True)
class SampledEnergy:
    energy_j: float
    interval_s: float
    samples: int


class PowerSampler:
    """`start()`, work that has been going on for `AVERAGED_S`, `stop()`."""

    def __init__(
        self,
        read_w: Callable[[], float | None],
        *,
        now_s: Callable[[], float] = time.perf_counter,
        period_s: float = PERIOD_S,
    ) -> None:
        """`read_w`: None where there is no answer."""
        self._read_w = read_w
        self._now_s = now_s
        self._period_s = period_s
        self._samples: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample_on, name="power-sampler", daemon=True)

    def start(self) -> None:
        """Once; the first reading is taken here, and the last one by `stop`."""
        self.sample()
        self._thread.start()

    def stop(self) -> SampledEnergy | None:
        """By the trapezoidal rule; None where it took less than the time between two readings."""
        self._stop.set()
        self._thread.join()
        self.sample()
        if not self._samples:
            return None
        interval_s = self._samples[-1][0] - self._samples[0][0]
        if interval_s < self._period_s:
            return None
        energy_j = sum(
            (before_w + after_w) / 2 * (after_s - before_s)
            for (before_s, before_w), (after_s, after_w) in pairwise(self._samples)
        )
        return SampledEnergy(energy_j, interval_s, len(self._samples))

    def sample(self) -> None:
        """One reading, now."""
        power_w = self._read_w()
        if power_w is not None:
            self._samples.append((self._now_s(), power_w))

    def _sample_on(self) -> None:
        while not self._stop.wait(self._period_s):
            self.sample()
