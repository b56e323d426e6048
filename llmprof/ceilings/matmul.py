"""Matmul ceilings per dtype: the best of a sweep over library calls and shapes."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from llmprof.ceilings.matmul_kernels import (
    MatmulKernel,
    Shape,
    float32_precision,
    matmul_dtypes,
    matmul_kernels,
)
from llmprof.ceilings.pool import budget_bytes
from llmprof.ceilings.timing import Call, Rates, Stopwatch, race
from llmprof.schema.ceilings import ComputeCeiling
from llmprof.schema.measurement import Caveat
from llmprof.store.progress import Progress

_SHAPES_CPU: tuple[Shape, ...] = (
    (256, 256, 256),
    (512, 512, 512),
    (1024, 1024, 1024),
    (512, 2048, 2048),
    (1536, 1536, 1536),
    (512, 2048, 8192),
    (512, 8192, 2048),
    (2048, 2048, 2048),
    (3072, 3072, 3072),
    (2048, 8192, 2048),
    (4096, 4096, 4096),
)
"""By growing work: squares, and projections of a 1B model (prompts of 512 and 2048 tokens)."""
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
_SCREENED = 2
_FINALISTS = 3
_FEWEST_REPEATS = 3
_WIDEST_BYTES = 4
_LAUNCHES_S = 0.002
"""Short calls are timed in batches of about this length."""


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


def measure_matmuls(
    device: str, *, budget_s: float, progress: Progress
) -> tuple[tuple[ComputeCeiling, ...], tuple[Caveat, ...]]:
    """The ceiling of each dtype in about `budget_s` together, and the dtypes that torch refuses."""
    ceilings: list[ComputeCeiling] = []
    caveats: list[Caveat] = []
    dtypes = matmul_dtypes(device)
    for done, dtype in enumerate(dtypes):
        progress.update("matmuls", done, len(dtypes))
        try:
            ceilings.append(_measure(dtype, device, budget_s=budget_s / len(dtypes)))
        except (RuntimeError, NotImplementedError) as error:
            reason = str(error).partition("\n")[0]
            message = f"no {dtype} matmul ceiling: torch refuses it on {device} ({reason})"
            caveats.append(Caveat(code="dtype-unavailable", message=message))
    progress.update("matmuls", len(dtypes), len(dtypes))
    return tuple(ceilings), tuple(caveats)


def best_contenders(
    dtype: str, device: str, stopwatch: Stopwatch, *, budget_s: float, call_s: float
) -> list[Contender]:
    """The fastest combinations of kernel and shape, best first.

    Shapes whose product would take longer than `call_s` are left out, except the smallest one: a
    dtype without a fast path is measured as it is. The sweep stops where `budget_s` is over.
    Operands are random normal numbers: zeros save power on a GPU and run faster than real data.
    """
    deadline = time.perf_counter() + budget_s
    screened: list[tuple[float, Contender]] = []
    for shape in _shapes_that_fit(device):
        fastest = screened[0][0] if screened else math.inf
        expected_s = flops(shape) / fastest
        if expected_s > call_s or time.perf_counter() + _SCREENED * expected_s > deadline:
            continue
        screened += [_screen(kernel, shape, stopwatch) for kernel in matmul_kernels(dtype, device)]
        screened.sort(key=lambda one: -one[0])
        del screened[_FINALISTS:]  # and free their operands
    return [contender for _, contender in screened]


def _shapes_that_fit(device: str) -> list[Shape]:
    """Shapes whose operands, a few finalists' at once, stay within the memory that may be taken."""
    budget = budget_bytes(device)
    shapes = _SHAPES_CPU if device == "cpu" else _SHAPES_GPU
    return [
        (m, n, k)
        for m, n, k in shapes
        if _WIDEST_BYTES * (m * k + n * k + m * n) * (_FINALISTS + 2) <= budget
    ]


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


def _measure(dtype: str, device: str, *, budget_s: float) -> ComputeCeiling:
    stopwatch = Stopwatch(device)
    with float32_precision(dtype):
        contenders = best_contenders(
            dtype, device, stopwatch, budget_s=budget_s * 0.6, call_s=budget_s / 8
        )
        rates = race_contenders(
            contenders, stopwatch, budget_s=budget_s * 0.4, at_least=_FEWEST_REPEATS
        )
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
    )


def _screen(kernel: MatmulKernel, shape: Shape, stopwatch: Stopwatch) -> tuple[float, Contender]:
    product = kernel.prepare(shape)
    product()
    taken_s = min(stopwatch.time_s(product) for _ in range(_SCREENED))
    batch = max(1, round(_LAUNCHES_S / taken_s))
    return flops(shape) / taken_s, Contender(kernel, shape, product, batch)
