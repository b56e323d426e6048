"""Matmul ceilings per dtype: the best of a sweep over library calls and shapes."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from llmprof.ceilings.device_clock import ReadClock, no_clock
from llmprof.ceilings.matmul_kernels import (
    MatmulKernel,
    Shape,
    float32_precision,
    matmul_dtypes,
    matmul_kernels,
)
from llmprof.ceilings.operand_sets import l2_bytes, operand_sets, rotated
from llmprof.ceilings.pool import budget_bytes
from llmprof.ceilings.timing import Call, Rates, Stopwatch, race
from llmprof.schema.ceilings import ComputeCeiling
from llmprof.schema.measurement import Caveat
from llmprof.store.progress import Progress

_SHAPES_CPU: tuple[Shape, ...] = (
    (256, 256, 256),
    (512, 512, 512),
    (1024, 1024, 1024),
    (1280, 1280, 1280),
    (512, 2048, 2048),
    (1536, 1536, 1536),
    (4096, 1024, 1024),
    (2048, 2048, 1024),
    (512, 2048, 8192),
    (512, 8192, 2048),
    (2048, 2048, 2048),
    (3072, 3072, 3072),
    (2048, 8192, 2048),
    (4096, 4096, 4096),
)
"""By growing work: squares, tall ones that a finer sweep found faster, and projections of a 1B model
(prompts of 512 and 2048 tokens)."""
_SHAPES_GPU: tuple[Shape, ...] = (
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (2048, 14336, 4096),
    (2048, 4096, 14336),
    (8192, 8192, 8192),
    (8192, 28672, 8192),
    (16384, 16384, 16384),
)
"""The same for a GPU: projections of an 8B and a 70B model."""
_CALLS_SCREENED = 5
_KEPT = 3
_FEWEST_REPEATS = 3
_WIDEST_BYTES = 4
_BYTES_OF = {"int8": 1, "fp8": 1, "bf16": 2, "fp16": 2}
_MOST_KERNELS = 2
_LAUNCHES_S = 0.002
"""Short calls are timed in batches of about this length."""
_SWEEP_SHARE = 0.6
_SWEEP_CALLS = 36
"""A sweep takes as long as so many calls of the longest product that it admits: 6 calls of 2 kernels
each, and all shapes together some 3 times as long as the longest."""


class _Entrant:
    """One kernel at one shape, while it is judged by the best of its calls."""

    def __init__(self, kernel: MatmulKernel, shape: Shape, cache_bytes: int) -> None:
        self.kernel = kernel
        self.shape = shape
        self._sets = operand_sets(operand_bytes(shape, kernel.dtype), cache_bytes)
        self.calls = 0
        self.best_s = math.inf
        self._product: Call | None = None

    @property
    def flops_per_s(self) -> float:
        return flops(self.shape) / self.best_s

    def time(self, stopwatch: Stopwatch) -> None:
        """One more call; the first one makes the operands and warms up."""
        product = self._prepared()
        self.best_s = min(self.best_s, stopwatch.time_s(product))
        self.calls += 1

    def contender(self) -> "Contender":
        batch = max(1, round(_LAUNCHES_S / self.best_s))
        return Contender(self.kernel, self.shape, self._prepared(), batch)

    def _prepared(self) -> Call:
        if self._product is None:
            self._product = rotated(lambda: self.kernel.prepare(self.shape), self._sets)
            self._product()
        return self._product


@dataclass(frozen=True, slots=True)
class Contender:
    """One kernel at one shape, ready to run; a call is `batch` products."""

    kernel: MatmulKernel
    shape: Shape
    product: Call
    batch: int

    @property
    def flops_per_call(self) -> float:
        return self.batch * flops(self.shape)

    def __call__(self) -> None:
        for _ in range(self.batch):
            self.product()


def flops(shape: Shape) -> float:
    """2 m n k: a multiply-add is two."""
    m, n, k = shape
    return 2.0 * m * n * k


def operand_bytes(shape: Shape, dtype: str) -> int:
    """Of what one product reads, and of 16-bit results at the least."""
    m, n, k = shape
    number = _BYTES_OF.get(dtype, _WIDEST_BYTES)
    return number * (m * k + n * k) + max(number, 2) * m * n


def measure_matmuls(
    device: str, *, budget_s: float, progress: Progress, sm_clock_hz: ReadClock = no_clock
) -> tuple[tuple[ComputeCeiling, ...], tuple[Caveat, ...]]:
    """The ceiling of each dtype in about `budget_s` together, and the dtypes that torch refuses.

    Products of a GPU find their operands in its memory, not in its L2 (`operand_sets`).
    """
    ceilings: list[ComputeCeiling] = []
    caveats: list[Caveat] = []
    dtypes = matmul_dtypes(device)
    for done, dtype in enumerate(dtypes):
        progress.update("matmuls", done, len(dtypes))
        try:
            ceilings.append(_measure(dtype, device, budget_s / len(dtypes), sm_clock_hz))
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            message = f"no {dtype} matmul ceiling: torch refuses it on {device} ({reason})"
            caveats.append(Caveat(code="dtype-unavailable", message=message))
    progress.update("matmuls", len(dtypes), len(dtypes))
    return tuple(ceilings), tuple(caveats)


def best_contenders(
    dtype: str,
    device: str,
    stopwatch: Stopwatch,
    *,
    call_s: float,
    known_flops_per_s: float = 0.0,
) -> list[Contender]:
    """Up to three shapes, each with its best kernel, the fastest first.

    Shapes are judged by the best of five calls, in turn with all the others, so that a disturbance
    does not single one out. Those whose product would take longer than `call_s` are left out, except
    the smallest: a dtype without a fast path is measured as it is. What they would take follows from
    the best rate so far, or from `known_flops_per_s` if this device has reached more before, and is
    asked again after every turn: no shape is lost to slow first calls. The largest one that took
    part is always kept, since a busy machine makes long calls look slow.
    Operands are random normal numbers: zeros save power on a GPU and run faster than real data.
    """
    shapes = _shapes_that_fit(device)
    kernels = matmul_kernels(dtype, device)
    cache_bytes = l2_bytes(device)
    entrants = [_Entrant(kernel, shape, cache_bytes) for shape in shapes for kernel in kernels]
    while due := _still_due(entrants, call_s, known_flops_per_s):
        for entrant in due:
            entrant.time(stopwatch)
    by_shape: dict[Shape, _Entrant] = {}
    for entrant in sorted(entrants, key=lambda one: -one.flops_per_s):
        if entrant.calls:
            by_shape.setdefault(entrant.shape, entrant)
    ranked = list(by_shape.values())
    largest = max(ranked, key=lambda one: flops(one.shape))
    kept = ranked[:_KEPT] if largest in ranked[:_KEPT] else [*ranked[: _KEPT - 1], largest]
    return [entrant.contender() for entrant in kept]


def _still_due(
    entrants: Sequence[_Entrant], call_s: float, known_flops_per_s: float
) -> list[_Entrant]:
    """Those that are short enough and have not had all of their calls."""
    longest = call_s * max(known_flops_per_s, *(entrant.flops_per_s for entrant in entrants))
    return [
        entrant
        for entrant in entrants
        if entrant.calls < _CALLS_SCREENED
        and (entrant.shape == entrants[0].shape or flops(entrant.shape) <= longest)
    ]


def _shapes_that_fit(device: str) -> list[Shape]:
    """The smaller shapes, as many as the memory that may be taken holds at once; one at least."""
    budget = budget_bytes(device)
    shapes = _SHAPES_CPU if device == "cpu" else _SHAPES_GPU
    cache_bytes = l2_bytes(device)
    each = [_WIDEST_BYTES * (m * k + n * k + m * n) for m, n, k in shapes]
    sizes = [_MOST_KERNELS * (size + 2 * cache_bytes) for size in each]
    fitting = sum(taken <= budget for taken in itertools.accumulate(sizes))
    return list(shapes[: max(1, fitting)])


def race_contenders(
    contenders: Sequence[Contender], stopwatch: Stopwatch, *, budget_s: float, at_least: int
) -> list[Rates]:
    """FLOP/s of each contender, in their order, measured in turn."""
    per_call = {str(index): one for index, one in enumerate(contenders)}
    raced = race(stopwatch, per_call, 1.0, budget_s=budget_s, at_least=at_least)
    return [
        Rates(tuple(calls * one.flops_per_call for calls in raced[index].per_s))
        for index, one in per_call.items()
    ]


def _measure(dtype: str, device: str, budget_s: float, sm_clock_hz: ReadClock) -> ComputeCeiling:
    stopwatch = Stopwatch(device)
    with float32_precision(dtype):
        contenders = best_contenders(
            dtype, device, stopwatch, call_s=budget_s * _SWEEP_SHARE / _SWEEP_CALLS
        )
        rates = race_contenders(
            contenders, stopwatch, budget_s=budget_s * (1 - _SWEEP_SHARE), at_least=_FEWEST_REPEATS
        )
        clock_hz = sm_clock_hz()
    best, winner = max(
        zip(rates, contenders, strict=True), key=lambda pair: pair[0].ceiling(device)
    )
    m, n, k = winner.shape
    return ComputeCeiling(
        dtype=dtype,
        m=m,
        n=n,
        k=k,
        flops_per_s=best.ceiling(device),
        median_flops_per_s=best.median,
        spread=best.spread,
        kernel=winner.kernel.name,
        sm_clock_hz=clock_hz or None,
    )
