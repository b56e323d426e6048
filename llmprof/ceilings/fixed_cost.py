"""Alpha: what one op costs whatever its size, and what sharing it among threads adds."""

import functools
import statistics
import time
from collections.abc import Mapping
from typing import Final

import torch

from llmprof.ceilings.device_fixed_cost import measure_device_fixed_cost
from llmprof.ceilings.pool import random_tensor
from llmprof.ceilings.quiet import is_contended
from llmprof.ceilings.timing import Call, Rates, Stopwatch
from llmprof.engine.kernels.native import compile_kernel, openmp_runtime
from llmprof.instruments.contention import ContentionMeter
from llmprof.schema.ceilings import FixedCost
from llmprof.schema.environment import Environment

_NUMEL: Final = 576
"""A row of activations of a small model: far below the size from which torch shares an op."""
_ATTEMPTS: Final = 3
_BATCHES: Final = 25
_FEWEST_BATCHES: Final = 5
_LIVE_BATCHES: Final = 10
_ATTEMPT_S: Final = 0.3
"""A crowded machine may take so long for fewer batches: threads that wait for each other crawl there."""
_CALLS: Final = 50
"""Per batch: less than 0.1 ms, which is short enough to fall between two disturbances."""
_SHARED: Final = "shared"
_ALONE: Final = "alone"


def measure_fixed_cost(environment: Environment, device: str) -> FixedCost:
    """Alpha of a CPU (torch's dispatch from Python included) or of a GPU.

    A roof must not be higher than what any op takes: alpha is the cheapest kind of op, each kind at
    the best of many short batches. A disturbed measurement is repeated, and the least is kept.
    """
    if device != "cpu":
        gpu = environment.gpu
        return measure_device_fixed_cost(device, None if gpu is None else gpu.l2_bytes)
    with torch.inference_mode():
        ops, regions = _tiny_ops(), _empty_regions(environment.threads)
        times_s = _least_times_s({**ops, **regions})
    by_kind_s = {kind: times_s[kind] for kind in ops}
    cheapest = min(by_kind_s, key=lambda kind: by_kind_s[kind])
    return FixedCost(
        alpha_s=by_kind_s[cheapest],
        spread=Rates(tuple(by_kind_s.values())).spread,
        method=(
            f"{cheapest}, the cheapest of {', '.join(ops)} on {_NUMEL} float32 by one thread, "
            "called from Python"
        ),
        parallel_s=_parallel_s(times_s) if regions else None,
    )


class TinyOps:
    """Alpha of a CPU, again and again in a few milliseconds: that of a GPU knows no neighbours."""

    def __init__(self) -> None:
        self._ops = _tiny_ops()

    def read_s(self) -> float:
        """Of the cheapest kind, the median of its batches: what it costs now, not at best."""
        batches_s = _batches_s(self._ops, _LIVE_BATCHES)
        return min(statistics.median(times) for times in batches_s.values()) / _CALLS


def _tiny_ops() -> dict[str, Call]:
    """Ops of a decode step that read and write a few cache lines, into memory that is there.

    Partials, since a lambda's own call would count.
    """
    a, b, out = (random_tensor((_NUMEL,), "cpu", torch.float32) for _ in range(3))
    return {
        "add": functools.partial(torch.add, a, b, out=out),
        "mul": functools.partial(torch.mul, a, b, out=out),
        "copy_": functools.partial(out.copy_, a),
        "rsqrt": functools.partial(torch.rsqrt, a, out=out),
    }


def _empty_regions(threads: int) -> dict[str, Call]:
    """A kernel without work, on torch's pool and on the calling thread; none where that is the same."""
    if threads == 1 or openmp_runtime() is None:
        return {}
    kernel = compile_kernel("nothing", 0, lambda body: None)
    return {_SHARED: kernel, _ALONE: kernel.alone}


def _parallel_s(times_s: Mapping[str, float]) -> float | None:
    """None where the difference drowns in noise."""
    extra_s = times_s[_SHARED] - times_s[_ALONE]
    return extra_s if extra_s > 0 else None


def _least_times_s(calls: Mapping[str, Call]) -> dict[str, float]:
    """Seconds per call, the least of up to three attempts: noise only adds."""
    meter = ContentionMeter(threads=1)
    times_s: dict[str, float] = dict.fromkeys(calls, float("inf"))
    for _ in range(_ATTEMPTS):
        meter.start()
        for name, time_s in _times_s(calls).items():
            times_s[name] = min(times_s[name], time_s)
        if not is_contended(meter.stop()):
            break
    return times_s


def _times_s(calls: Mapping[str, Call]) -> dict[str, float]:
    """Seconds per call, the best of its batches."""
    batches_s = _batches_s(calls, _BATCHES)
    return {name: min(times) / _CALLS for name, times in batches_s.items()}


def _batches_s(calls: Mapping[str, Call], batches: int) -> dict[str, list[float]]:
    """Seconds of each batch; batches of all take turns."""
    stopwatch = Stopwatch("cpu")
    batches_s: dict[str, list[float]] = {name: [] for name in calls}
    deadline = time.perf_counter() + _ATTEMPT_S
    for batch in range(batches):
        if batch >= _FEWEST_BATCHES and time.perf_counter() > deadline:
            break
        for name, call in calls.items():
            batches_s[name].append(stopwatch.time_s(functools.partial(_call_often, call)))
    return batches_s


def _call_often(call: Call) -> None:
    for _ in range(_CALLS):
        call()
