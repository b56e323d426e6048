"""The engine's own matmul kernel at the rows of a run, with weights streamed past the caches."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from llmprof.ceilings.pool import Stream, random_tensor
from llmprof.ceilings.timing import Stopwatch
from llmprof.engine.linear import Linear

Shape = tuple[int, int]
"""out_features, in_features."""
MakeProduct = Callable[[torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]
"""From a weight [out, in] to the function of activations [rows, in] that multiplies by it."""

_CALL_S = 0.002
_MOST_PRODUCTS = 128
"""So few launches are queued while the spin kernel of the stopwatch still runs on a GPU."""
_FIRST_BYTES = 1 << 20
_FIRST_CALLS = 3
_LEAST_CALL_BYTES = 4 << 20
"""However slow the first calls were: the machine may have been busy then."""


@dataclass(frozen=True, slots=True)
class _Matrix:
    """One shape of the step, cut by output rows to what a short call can read."""

    step_bytes: float
    """What a step reads of this shape: as it is, in all layers."""
    rows_read: int
    """Output rows of one product."""
    products: int
    """Weights per call."""
    x: torch.Tensor
    """Activations [rows, in]."""

    @property
    def weight_numel(self) -> int:
        return self.rows_read * self.x.shape[1]


class SkinnyProbe:
    """Bytes of weights per second of [rows, in] times [in, out] products, over the step's shapes.

    Weights are views of a stream that is as large as the run's working set, so they come from the
    level of memory that serves the run. A matrix that takes longer than 2 ms is cut by output rows:
    its rate does not depend on its height by then. Shapes count by the bytes that a step reads of
    them: all but the last are taken for one layer, repeated as often as the working set holds them
    beside the last one, the head (a long cache makes that count too high, which moves the mix of
    shapes and nothing else).
    """

    def __init__(
        self,
        shapes: Sequence[Shape],
        rows: int,
        stream: Stream,
        stopwatch: Stopwatch,
        *,
        working_set_bytes: int,
        make_product: MakeProduct = Linear,
    ) -> None:
        """`stream` is over floats of the run's dtype on its device. Runs every shape a few times."""
        self._stream = stream
        self._stopwatch = stopwatch
        self._make_product = make_product
        bytes_per_step = step_bytes(shapes, stream.pool.itemsize, working_set_bytes)
        self._matrices = [
            self._matrix(shape, rows, total)
            for shape, total in zip(shapes, bytes_per_step, strict=True)
        ]
        self.read(0.0)

    def read(self, budget_s: float) -> float:
        """Bytes per second, each shape at the best of its calls; every shape runs once at least."""
        best = [0.0] * len(self._matrices)
        deadline = time.perf_counter() + budget_s
        first = True
        while first or time.perf_counter() < deadline:
            for index, matrix in enumerate(self._matrices):
                best[index] = max(best[index], self._rate(matrix))
            first = False
        total = sum(matrix.step_bytes for matrix in self._matrices)
        return total / sum(
            m.step_bytes / rate for m, rate in zip(self._matrices, best, strict=True)
        )

    def _matrix(self, shape: Shape, rows: int, total_bytes: float) -> _Matrix:
        """Time about 1 MiB of this shape, then choose how much one call reads."""
        out_features, in_features = shape
        pool = self._stream.pool
        x = random_tensor((rows, in_features), str(pool.device), pool.dtype)
        row_bytes = in_features * pool.itemsize
        few = max(1, min(out_features, _FIRST_BYTES // row_bytes, pool.nbytes // row_bytes))
        small = _Matrix(total_bytes, few, 1, x)
        fastest = max(self._rate(small) for _ in range(_FIRST_CALLS))
        call_bytes = max(fastest * _CALL_S, _LEAST_CALL_BYTES)
        cut = max(few, min(out_features, int(call_bytes / row_bytes), pool.nbytes // row_bytes))
        weight_bytes = cut * row_bytes
        products = min(
            max(1, round(call_bytes / weight_bytes)), _MOST_PRODUCTS, pool.nbytes // weight_bytes
        )
        return _Matrix(total_bytes, cut, products, x)

    def _rate(self, matrix: _Matrix) -> float:
        """One call; views and bindings are made before its time begins."""
        weights = self._stream.take(matrix.products * matrix.weight_numel)
        products = [
            self._make_product(weight)
            for weight in weights.view(matrix.products, matrix.rows_read, matrix.x.shape[1])
        ]

        def multiply() -> None:
            for product in products:
                product(matrix.x)

        return self._stopwatch.rate(multiply, weights.nbytes)


def step_bytes(shapes: Sequence[Shape], itemsize: int, working_set_bytes: int) -> list[float]:
    """Bytes that one step reads of each shape: layers times the layer's shapes, and the last once."""
    sizes = [float(rows * columns * itemsize) for rows, columns in shapes]
    layer = sum(sizes[:-1])
    layers = max(1, round((working_set_bytes - sizes[-1]) / layer)) if layer else 1
    return [size * layers for size in sizes[:-1]] + sizes[-1:]
