"""Alpha: what one op costs whatever its size."""

import itertools
import statistics
import time
from collections.abc import Sequence

import torch

from llmprof.ceilings.memory_levels import CacheSizes
from llmprof.ceilings.pool import random_tensor
from llmprof.ceilings.timing import Rates, Stopwatch
from llmprof.schema.ceilings import FixedCost
from llmprof.schema.environment import Environment

_STEPS = (2, 3, 4, 5, 6, 7, 8)
"""Sizes in eighths of the largest one."""
_BYTES_PER_ELEMENT = 12
"""Two float32 read, one written."""
_GRAIN = 32_768
"""Elements below which torch does not share an elementwise op among threads (at::internal)."""
_MOST_ELEMENTS = 1 << 22
_FITS = 9
_FEWEST_FITS = 3
_BUDGET_S = 0.5
_REPEATS = 5
_CALLS = 8
_LAUNCHES = 100


def measure_fixed_cost(environment: Environment, device: str) -> FixedCost:
    """The cost on a CPU includes torch's dispatch from Python and waking the threads."""
    if device == "cpu":
        return _of_parallel_op(environment)
    return _of_smallest_kernel(device)


def intercept(sizes: Sequence[float], times_s: Sequence[float]) -> float:
    """Alpha of t = alpha + size / bandwidth, in seconds, by the Theil-Sen estimator.

    Medians over pairs: a few disturbed times do not move it.
    """
    points = list(zip(sizes, times_s, strict=True))
    slope = statistics.median(
        (t2 - t1) / (x2 - x1) for (x1, t1), (x2, t2) in itertools.combinations(points, 2)
    )
    return statistics.median(t - slope * x for x, t in points)


def _of_parallel_op(environment: Environment) -> FixedCost:
    """Sizes stay in the L2 caches, where time grows linearly, and are large enough for all threads."""
    in_l2 = CacheSizes.of(environment).l2_bytes // 2 // _BYTES_PER_ELEMENT
    largest = min(max(in_l2, 8 * _GRAIN // _STEPS[0]), _MOST_ELEMENTS)
    sizes = [largest * step // 8 for step in _STEPS]
    fits: list[float] = []
    deadline = time.perf_counter() + _BUDGET_S
    while len(fits) < _FEWEST_FITS or (len(fits) < _FITS and time.perf_counter() < deadline):
        fits.append(intercept(sizes, _times_of_add(sizes)))
    alpha_s = statistics.median(fits)
    method = f"torch.add(out=) on {environment.threads} threads, Python dispatch included: "
    if (
        alpha_s <= 0
    ):  # the line is too steep or too noisy to have an intercept: say no more than true
        smallest_s = min(_times_of_add(sizes[:1]))
        return FixedCost(
            alpha_s=smallest_s, spread=0.0, method=f"{method}time of {sizes[0]:,} elements"
        )
    return FixedCost(
        alpha_s=alpha_s,
        spread=Rates(tuple(fits)).spread,
        method=f"{method}intercept over {len(sizes)} sizes in L2",
    )


def _times_of_add(sizes: Sequence[int]) -> list[float]:
    """Seconds per call at each size: the best of a few batches, sizes in turn."""
    stopwatch = Stopwatch("cpu")
    a, b, out = (random_tensor((max(sizes),), "cpu", torch.float32) for _ in range(3))
    best = [float("inf")] * len(sizes)
    for _ in range(_REPEATS):
        for index, size in enumerate(sizes):
            operands = a[:size], b[:size], out[:size]
            best[index] = min(best[index], stopwatch.time_s(lambda o=operands: _add(*o)) / _CALLS)  # type: ignore[misc]
    return best


def _add(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    for _ in range(_CALLS):
        torch.add(a, b, out=out)


def _of_smallest_kernel(device: str) -> FixedCost:
    """Back to back in a stream, launches hidden: what is left is start, ramp and tail."""
    stopwatch = Stopwatch(device)
    one = torch.zeros(1, device=device)

    def launch_many() -> None:
        for _ in range(_LAUNCHES):
            one.add_(1.0)

    launch_many()
    rates = Rates(tuple(stopwatch.rate(launch_many, _LAUNCHES) for _ in range(_FITS)))
    return FixedCost(
        alpha_s=1 / rates.median,
        spread=rates.spread,
        method=f"one-element kernel, {_LAUNCHES} back to back in a stream",
    )
