"""The engine's own matmul kernel at the rows of a run, with weights streamed past the caches."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from llmprof.ceilings.pool import Stream, random_tensor
from llmprof.ceilings.timing import Stopwatch
from llmprof.ceilings.weight_stream import Weight, WeightStream
from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.dtypes import DTYPE_NAMES
from llmprof.engine.execution.step_program import recorded_call
from llmprof.engine.linear import Linear

Shape = tuple[int, int]
"""out_features, in_features."""
MakeProduct = Callable[[Weight], Callable[[torch.Tensor], torch.Tensor]]
"""From a weight [out, in], floats or packed, to the function of activations [rows, in] that
multiplies by it."""

_CALL_S = 0.002
_MOST_PRODUCTS = 128
"""So few launches are queued while the spin kernel of the stopwatch still runs on a GPU."""
_FIRST_BYTES = 1 << 20
_FIRST_CALLS = 3
_LEAST_CALL_BYTES = 4 << 20
"""However slow the first calls were: the machine may have been busy then."""


@dataclass(frozen=True, slots=True)
class SkinnyRates:
    """What one reading found."""

    bytes_per_s: float
    """Each shape at the best of its calls."""
    passes_bytes_per_s: tuple[float, ...]
    """Each pass over the shapes alone."""


@dataclass(frozen=True, slots=True)
class _Matrix:
    """One shape of the step, cut by output rows to what a short call can read."""

    format: WeightFormat
    step_bytes: float
    """What a step reads of this shape: as it is, in all layers."""
    rows_read: int
    """Output rows of one product."""
    products: int
    """Weights per call."""
    x: torch.Tensor
    """Activations [rows, in]."""

    @property
    def call_bytes(self) -> int:
        return self.products * self.format.stored_bytes(self.rows_read, self.x.shape[1])


class SkinnyProbe:
    """Bytes of weights per second of [rows, in] times [in, out] products, over the step's shapes.

    Weights are views of a stream that is as large as the run's working set, so they come from the
    level of memory that serves the run; of packed ones, the packed bytes count. A matrix that takes
    longer than 2 ms is cut by output rows: its rate does not depend on its height by then. Shapes
    count by the bytes that a step reads of them: all but the last are taken for one layer, repeated
    as often as the working set holds them beside the last one, the head (a long cache makes that
    count too high, which moves the mix of shapes and nothing else).
    """

    def __init__(
        self,
        shapes: Sequence[Shape],
        rows: int,
        stream: Stream | WeightStream,
        stopwatch: Stopwatch,
        *,
        working_set_bytes: int,
        formats: Sequence[WeightFormat] = (),
        make_product: MakeProduct = Linear,
        whole: bool = False,
        replayed: bool = False,
    ) -> None:
        """`stream` is over floats of the run's dtype on its device; `formats` has one per shape.

        Without formats, weights are floats of that dtype. `whole` matrices are never cut: with many
        rows, what a product does to its activations is paid once a matrix, however high it is.
        `replayed`: recorded and started by native code, as steps of `execution.mode=compiled` on a CPU.
        Runs every shape a few times.
        """
        self._replayed = replayed
        self._whole = whole
        self._rows = rows
        self._weights = stream if isinstance(stream, WeightStream) else WeightStream(stream)
        self._stopwatch = stopwatch
        self._make_product = make_product
        self._device = self._weights.device
        formats = formats or [WeightFormat(DTYPE_NAMES[self._weights.dtype])] * len(shapes)
        per_step = step_bytes(shapes, formats, working_set_bytes)
        self._matrices = [self._matrix(*one) for one in zip(shapes, formats, per_step, strict=True)]
        self.read(0.0)

    @property
    def formats(self) -> tuple[str, ...]:
        """Names of the formats that occur."""
        return tuple(dict.fromkeys(matrix.format.name for matrix in self._matrices))

    def read(self, budget_s: float, *, most_passes: int = 1) -> SkinnyRates:
        """Pass over the shapes once, and again while that is likely to fit into `budget_s`.

        A step's time at the ceiling is the sum over its shapes, each at its best call: a step that
        nothing disturbs runs all of them so.
        """
        passes: list[list[float]] = []
        deadline = time.perf_counter() + budget_s
        taken_s = 0.0
        while not passes or (
            len(passes) < most_passes and time.perf_counter() + taken_s <= deadline
        ):
            begin_s = time.perf_counter()
            passes.append([self._rate(matrix) for matrix in self._matrices])
            taken_s = time.perf_counter() - begin_s
        best = [max(rates) for rates in zip(*passes, strict=True)]
        return SkinnyRates(self._step_rate(best), tuple(map(self._step_rate, passes)))

    def _step_rate(self, rates: Sequence[float]) -> float:
        """Of a whole step whose shapes run at these rates, one after the other."""
        parts = [matrix.step_bytes for matrix in self._matrices]
        return sum(parts) / sum(part / rate for part, rate in zip(parts, rates, strict=True))

    def _matrix(self, shape: Shape, weights: WeightFormat, total_bytes: float) -> _Matrix:
        """Time about 1 MiB of this shape, then choose how much one call reads."""
        out_features, in_features = shape
        x = random_tensor((self._rows, in_features), self._device, self._weights.dtype)
        row_bytes = weights.stored_bytes(1, in_features)
        most_rows = min(out_features, self._weights.nbytes // row_bytes)
        few = max(1, min(most_rows, _FIRST_BYTES // row_bytes))
        small = _Matrix(weights, total_bytes, few, 1, x)
        fastest = max(self._rate(small) for _ in range(_FIRST_CALLS))
        call_bytes = max(fastest * _CALL_S, _LEAST_CALL_BYTES)
        cut = most_rows if self._whole else max(few, min(most_rows, int(call_bytes / row_bytes)))
        weight_bytes = weights.stored_bytes(cut, in_features)
        products = min(
            max(1, round(call_bytes / weight_bytes)),
            _MOST_PRODUCTS,
            self._weights.nbytes // weight_bytes,
        )
        return _Matrix(weights, total_bytes, cut, products, x)

    def _rate(self, matrix: _Matrix) -> float:
        """One call; views, bindings and recordings are made before its time begins."""
        shape = matrix.rows_read, matrix.x.shape[1]
        products = [
            self._make_product(self._weights.take(matrix.format, *shape))
            for _ in range(matrix.products)
        ]

        def multiply() -> None:
            for product in products:
                product(matrix.x)

        call = recorded_call(multiply) if self._replayed else multiply
        return self._stopwatch.rate(call, matrix.call_bytes)


def step_bytes(
    shapes: Sequence[Shape], formats: Sequence[WeightFormat], working_set_bytes: int
) -> list[float]:
    """Bytes that one step reads of each shape: layers times the layer's shapes, and the last once."""
    sizes = [
        float(weights.stored_bytes(*shape)) for shape, weights in zip(shapes, formats, strict=True)
    ]
    layer = sum(sizes[:-1])
    layers = max(1, round((working_set_bytes - sizes[-1]) / layer)) if layer else 1
    return [size * layers for size in sizes[:-1]] + sizes[-1:]
