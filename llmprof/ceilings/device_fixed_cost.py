"""Alpha of a GPU: what a kernel takes beside its bytes, in a stream and in a CUDA graph.

Three costs that are easily mixed up are measured apart. A kernel that streams memory pays its start,
its ramp and its tail: the intercept of read times from 1 MiB to 1 GiB. A kernel whose data lies in
caches pays hardly more than its start: one element, among others of its kind. What the host takes to
launch a kernel is no part of either, since the device is held back until all of them are queued.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from llmprof.ceilings.line_fit import Line, line_through
from llmprof.ceilings.pool import Stream, random_pool
from llmprof.ceilings.read_kernels import ReadKernel, read_kernels
from llmprof.ceilings.timing import Call, Rates, Stopwatch
from llmprof.schema.ceilings import FixedCost
from llmprof.units import byte_count

SIZES_BYTES: Final = tuple(1 << power for power in range(20, 31, 2))
_LAUNCHES: Final = 100
_REPEATS: Final = 9
_HELD_BACK_S: Final = 0.010
"""Longer than the host takes to enqueue the reads of a call: some 200 launches of Triton."""
_L2_MULTIPLE: Final = 2
_MOST_READS: Final = 256
_UNKNOWN_L2_BYTES: Final = 128 << 20
"""Larger than that of most GPUs."""


@dataclass(frozen=True, slots=True)
class _Fit:
    line: Line
    spread: float
    """Interquartile range over median of the alphas of single repeats."""


def measure_device_fixed_cost(device: str, l2_bytes: int | None) -> FixedCost:
    """Of `cuda:N`; figures of a graph are null where torch captures none."""
    kernel = read_kernels(device)[0]
    stream = Stream(random_pool(SIZES_BYTES[-1], device, torch.float32))
    stopwatch = Stopwatch(device, held_back_s=_HELD_BACK_S)
    calls = _calls(kernel, stream, l2_bytes or _UNKNOWN_L2_BYTES)
    tiny = _Repeated(_tiny_kernel(device), _LAUNCHES)
    fitted, small_s = _fit(calls, stopwatch), _seconds_per_launch(tiny, stopwatch)
    replayed, tiny_graph = [_captured(call) for call in calls], _captured(tiny)
    graph = None if None in replayed else _fit([one for one in replayed if one], stopwatch)
    small_graph_s = None if tiny_graph is None else _seconds_per_launch(tiny_graph, stopwatch)
    return FixedCost(
        alpha_s=max(fitted.line.alpha_s, small_s),
        spread=fitted.spread,
        method=(
            f"intercept of reads of {byte_count(calls[0].num_bytes)} to "
            f"{byte_count(calls[-1].num_bytes)} past the L2, back to back in a stream "
            f"({kernel.name})"
        ),
        graph_s=None if graph is None else max(graph.line.alpha_s, small_graph_s or 0.0),
        fit_error=fitted.line.worst_error,
        small_s=small_s,
        small_graph_s=small_graph_s,
        launch_s=_seconds_to_launch(tiny, device),
    )


class _Repeated:
    """Launches of one kernel after the other; `num_bytes` each."""

    def __init__(self, call: Call, launches: int, num_bytes: int = 0) -> None:
        self._call = call
        self.launches = launches
        self.num_bytes = num_bytes

    def __call__(self) -> None:
        for _ in range(self.launches):
            self._call()


def _calls(kernel: ReadKernel, stream: Stream, l2_bytes: int) -> list[_Repeated]:
    """One per size that the memory holds; each reads more than the L2 before it reads bytes again."""
    found = []
    for size in SIZES_BYTES:
        if size > stream.pool.nbytes:
            break
        reads = min(_MOST_READS, -(-_L2_MULTIPLE * l2_bytes // size))
        found.append(_Repeated(_next_read(kernel, stream, size), max(1, reads), size))
    return found


def _next_read(kernel: ReadKernel, stream: Stream, size_bytes: int) -> Callable[[], None]:
    def read() -> None:
        kernel.read(stream.take(size_bytes // stream.pool.itemsize), 1)

    return read


def _tiny_kernel(device: str) -> Call:
    one = torch.zeros(1, device=device)
    return lambda: one.add_(1.0)


def _fit(calls: Sequence["_Repeated | _Replay"], stopwatch: Stopwatch) -> _Fit:
    """Through the median times; of all sizes in turn, so that a disturbance is not one size's."""
    sizes = [call.num_bytes for call in calls]
    for call in calls:
        call()  # compiles it, and is not timed
    rounds = [[stopwatch.time_s(call) / call.launches for call in calls] for _ in range(_REPEATS)]
    medians = [statistics.median(times) for times in zip(*rounds, strict=True)]
    alphas = [line_through(sizes, times).alpha_s for times in rounds]
    spread = Rates(tuple(alphas)).spread if statistics.median(alphas) > 0 else 1.0
    return _Fit(line_through(sizes, medians), spread)


def _seconds_per_launch(call: "_Repeated | _Replay", stopwatch: Stopwatch) -> float:
    """Median of the repeats, after one that does not count."""
    call()
    return statistics.median(stopwatch.time_s(call) / call.launches for _ in range(_REPEATS))


def _seconds_to_launch(call: _Repeated, device: str) -> float:
    """Of the host, per kernel, while the queue has room."""
    times_s = []
    for _ in range(_REPEATS):
        torch.cuda.synchronize(device)
        begin_s = time.perf_counter()
        call()
        times_s.append((time.perf_counter() - begin_s) / call.launches)
    torch.cuda.synchronize(device)
    return statistics.median(times_s)


@dataclass(frozen=True, slots=True)
class _Replay:
    """The same launches as nodes of one CUDA graph."""

    graph: torch.cuda.CUDAGraph
    launches: int
    num_bytes: int

    def __call__(self) -> None:
        self.graph.replay()


def _captured(call: _Repeated) -> _Replay | None:
    """None where torch cannot capture the launches."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except RuntimeError:
        return None
    return _Replay(graph, call.launches, call.num_bytes)
