"""The clock of a GPU while a round runs: what is read after it may be that of an idle device."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from llmprof.instruments.clock import NS_PER_S
from llmprof.schema.run import ClockSample

PERIOD_S: Final = 0.050
MOST_SAMPLES: Final = 512
"""Of a round: a longer one keeps every second sample, and from then on reads half as often."""


@dataclass(frozen=True, slots=True)
class SampledClock:
    samples: tuple[ClockSample, ...]
    cpu_s: float
    """CPU time of the thread that read them."""


class ClockSampler:
    """`start()`, a round, `stop()`: a thread reads the clock every 50 ms in between.

    One reading is a call into the driver, which lets go of Python's lock; its CPU time is measured
    by the thread itself and counts as own cost. The first is taken one period after the start.
    """

    def __init__(
        self,
        read_hz: Callable[[], float | None],
        origin_ns: int,
        *,
        now_ns: Callable[[], int] = time.perf_counter_ns,
        period_s: float = PERIOD_S,
    ) -> None:
        """`read_hz`: None where there is no answer; `origin_ns`: start of the run, by `now_ns`."""
        self._read_hz = read_hz
        self._origin_ns = origin_ns
        self._now_ns = now_ns
        self._first_period_s = period_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._forget()

    def start(self) -> None:
        self._stop.clear()
        self._forget()
        self._thread = threading.Thread(target=self._sample_on, name="clock-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> SampledClock:
        """What was read since `start`; nothing where that was not called."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        return SampledClock(tuple(self._samples), self._cpu_s)

    def sample(self) -> None:
        """One reading, now."""
        hz = self._read_hz()
        if hz is None:
            return
        if len(self._samples) == MOST_SAMPLES:
            del self._samples[1::2]
            self._period_s *= 2
        time_s = (self._now_ns() - self._origin_ns) / NS_PER_S
        self._samples.append(ClockSample(time_s=time_s, sm_clock_hz=hz))

    def _sample_on(self) -> None:
        begin_s = time.thread_time()
        while not self._stop.wait(self._period_s):
            self.sample()
        self._cpu_s = time.thread_time() - begin_s

    def _forget(self) -> None:
        self._samples: list[ClockSample] = []
        self._period_s = self._first_period_s
        self._cpu_s = 0.0
