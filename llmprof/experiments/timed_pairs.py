"""Times of two kernels that took turns, as one record."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.prediction import KernelTime

Pair = TypeVar("Pair")

AGREED: Final = 0.2
"""Repeats whose best times spread by less have found what the kernel takes."""
_MOST_BATCHES: Final = 4


def repeat_until_agreed(
    take: Callable[[], Pair],
    times: Callable[[Pair], tuple[float, float]],
    *,
    repeats: int,
    on_cpu: bool,
) -> list[Pair]:
    """So many pairs, and as many again while either side's `times` (s) do not agree.

    A neighbour's second or two must not become a kernel's time. After four batches they are taken as
    they are.
    """
    pairs: list[Pair] = []
    for _ in range(_MOST_BATCHES):
        pairs += [take() for _ in range(repeats)]
        before, after = zip(*map(times, pairs), strict=True)
        if max(_spread(before, on_cpu=on_cpu), _spread(after, on_cpu=on_cpu)) <= AGREED:
            break
    return pairs


def kernel_time(
    phase: Phase,
    group: OpGroup,
    times: Sequence[tuple[float, float]],
    *,
    method: str,
    on_cpu: bool,
    base_phase: Phase | None = None,
) -> KernelTime:
    """Of (base, target) times in s: the best of each on a CPU, where a neighbour only slows."""
    before, after = zip(*times, strict=True)
    return KernelTime(
        phase=phase,
        group=group,
        base_s=min(before) if on_cpu else statistics.median(before),
        target_s=min(after) if on_cpu else statistics.median(after),
        spread=math.hypot(_spread(before, on_cpu=on_cpu), _spread(after, on_cpu=on_cpu)),
        method=method,
        base_phase=base_phase,
    )


def _spread(times: Sequence[float], *, on_cpu: bool) -> float:
    """How well the figure is known: what the third best adds to the best, or the quartiles' distance."""
    if on_cpu:
        best, *others = sorted(times)
        return others[:2][-1] / best - 1 if others else 0.0
    low, centre, high = statistics.quantiles(times, n=4)
    return (high - low) / centre / 2
