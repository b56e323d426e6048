"""Times of two kernels that took turns, as one record."""

import statistics
from collections.abc import Sequence

from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.prediction import KernelTime


def kernel_time(
    phase: Phase,
    group: OpGroup,
    times: Sequence[tuple[float, float]],
    *,
    method: str,
    on_cpu: bool,
) -> KernelTime:
    """Of (base, target) times in s: the best of each on a CPU, where a neighbour only slows."""
    low, centre, high = statistics.quantiles([after / before for before, after in times], n=4)
    middle = min if on_cpu else statistics.median
    return KernelTime(
        phase=phase,
        group=group,
        base_s=middle([before for before, _ in times]),
        target_s=middle([after for _, after in times]),
        spread=(high - low) / centre,
        method=method,
    )
