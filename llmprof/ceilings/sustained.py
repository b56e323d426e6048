"""Matmul ceilings after seconds without a pause: what power and cooling leave of a burst."""

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from llmprof.ceilings.device_clock import ReadClock, no_clock
from llmprof.ceilings.matmul import best_contenders, flops
from llmprof.ceilings.matmul_kernels import Shape, float32_precision
from llmprof.ceilings.timing import Rates, Stopwatch
from llmprof.schema.ceilings import ComputeCeiling
from llmprof.store.progress import Progress

_SCREENING_CALL_S: Final = 0.01
_GPU_CALL_S: Final = 0.1
"""A hundred times as long as the device is held back before each call."""
_COUNTED_SHARE: Final = 0.5
"""The second half of the time counts: clocks have settled by then, as far as they do so in seconds."""


def measure_sustained(
    burst: Sequence[ComputeCeiling],
    device: str,
    *,
    seconds_each: float,
    progress: Progress,
    sm_clock_hz: ReadClock = no_clock,
) -> tuple[ComputeCeiling, ...]:
    """One per dtype of `burst`, each after `seconds_each` of products without a pause.

    Seconds are less than a GPU's heat sink takes to warm up (some ten): `measured_s` says how long it
    was, and a longer one is asked for by a larger budget.
    """
    ceilings = []
    for done, one in enumerate(burst):
        progress.update("sustained matmuls", done, len(burst))
        ceilings.append(_sustained(one, device, seconds_each, sm_clock_hz))
    progress.update("sustained matmuls", len(burst), len(burst))
    return tuple(ceilings)


def _sustained(
    burst: ComputeCeiling, device: str, seconds: float, sm_clock_hz: ReadClock
) -> ComputeCeiling:
    stopwatch = Stopwatch(device)
    with float32_precision(burst.dtype):
        contender = best_contenders(
            burst.dtype,
            device,
            stopwatch,
            call_s=_SCREENING_CALL_S,
            known_flops_per_s=burst.flops_per_s,
        )[0]
        if device != "cpu":
            contender = replace(contender, batch=_products_per_call(burst, contender.shape))
        begin_s = time.perf_counter()
        timed = [
            (at_s - begin_s, stopwatch.rate(contender, contender.flops_per_call), sm_clock_hz())
            for at_s in _until(begin_s + seconds)
        ]
    measured_s = time.perf_counter() - begin_s
    late = [one for one in timed if one[0] >= _COUNTED_SHARE * seconds] or timed[-1:]
    rates = Rates(tuple(rate for _, rate, _ in late))
    clocks_hz = [clock_hz for *_, clock_hz in late if clock_hz]
    m, n, k = contender.shape
    return ComputeCeiling(
        dtype=burst.dtype,
        m=m,
        n=n,
        k=k,
        flops_per_s=rates.median,
        median_flops_per_s=rates.median,
        spread=rates.spread,
        kernel=contender.kernel.name,
        regime="sustained",
        measured_s=measured_s,
        sm_clock_hz=statistics.median(clocks_hz) if clocks_hz else None,
    )


def _products_per_call(burst: ComputeCeiling, shape: Shape) -> int:
    """So many that what lies between two calls is no pause: a GPU would take breath in it."""
    return max(1, round(_GPU_CALL_S * burst.flops_per_s / flops(shape)))


def _until(deadline_s: float) -> Iterator[float]:
    """Times of the host's clock, one at least."""
    now_s = time.perf_counter()
    while True:
        yield now_s
        now_s = time.perf_counter()
        if now_s >= deadline_s:
            return
