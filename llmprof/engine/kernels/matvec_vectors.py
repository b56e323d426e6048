"""The loop nest of y = x W^T + b for a few rows of x, in vectors of float32.

Each thread takes an equal part of W's rows and goes through it in blocks of a few adjacent rows:
every vector of weights is decoded once and multiplied with all rows of x before the next one is
touched, and every vector of x is used for all rows of the block.
"""

from collections.abc import Sequence
from typing import Any, Final

from llvmlite import ir

from llmprof.engine.kernels.matvec_plan import (
    CODES,
    MINIMUMS,
    SCALES,
    MatvecVariant,
    X,
    blocks_of_rows,
    fetch_ahead,
    first_row,
    write_outputs,
)
from llmprof.engine.kernels.native import KernelBody
from llmprof.engine.kernels.vector_ir import (
    F32,
    I32,
    LANES,
    STORED_TYPES,
    VectorCode,
    index_constant,
)
from llmprof.engine.kernels.weight_decoders import BlockDecoder, make_decoder

_REGISTER_TILE: Final = 16
"""Accumulators at once: half of the registers of AVX-512, the rest hold weights and x."""
_MOST_TOGETHER: Final = 8
"""Rows of x that share one pass over a block of W."""
_LATENCY_CHAINS: Final = 8
"""Sums that must be under way at once to hide the latency of an addition."""


def scratch_bytes(variant: MatvecVariant) -> int:
    """Of x in float32."""
    return 4 * variant.rows * -(-variant.in_features // LANES) * LANES


def register_tile(variant: MatvecVariant) -> tuple[int, int]:
    """Rows of W and rows of x that are worked on at once."""
    passes = -(-variant.rows // _MOST_TOGETHER)
    together = -(-variant.rows // passes)
    if variant.few_outputs:
        return 1, together
    return (4 if together <= _REGISTER_TILE // 4 else 2), together


def arrange_activations(body: KernelBody, variant: MatvecVariant) -> None:
    """Widen x [rows, in] to float32 [in / 16, rows, 16]: the rows' vectors lie side by side."""
    x = body.pointer(X, STORED_TYPES[variant.activations])
    out = body.pointer(body.scratch_slot, F32)
    builder, code = body.builder, body.code
    whole = variant.in_features // LANES * LANES
    for row in range(variant.rows):
        source = builder.gep(x, [index_constant(row * variant.in_features)])
        for lanes, begin, end in ((LANES, 0, whole), (1, whole, variant.in_features)):
            if begin == end:
                continue
            part = VectorCode(builder, lanes)
            with code.loop(index_constant(begin), index_constant(end), lanes) as loop:
                vector = part.load(source, loop.index, variant.activations)
                part.store(vector, out, _x_index(part, variant, row, loop.index), "fp32")


def multiply(body: KernelBody, variant: MatvecVariant) -> None:
    """One thread's rows of W."""
    code = body.code
    block, together = register_tile(variant)
    decoder = make_decoder(
        body, variant.weights, variant.in_features, block, (CODES, SCALES, MINIMUMS)
    )
    share, last = blocks_of_rows(body, block)
    with code.loop(*share, 1) as loop:
        first = first_row(body, loop.index, last, block)
        decoder.begin(first)
        for begin in range(0, variant.rows, together):
            rows = range(begin, min(begin + together, variant.rows))
            totals = _Totals(body, variant, block, rows, decoder)
            sums, tails = totals.vectors(prefetch=begin == 0), totals.tails()
            at_once = max(1, LANES // block)
            for j in range(0, len(rows), at_once):
                part = slice(j * block, (j + at_once) * block)
                outputs = code.sums(sums[part])
                if tails:
                    outputs = code.add(outputs, _gathered(code, tails[part], outputs.type))
                write_outputs(body, variant, rows[j : j + at_once], first, block, outputs)


class _Totals:
    """Products of a block of W's rows with some rows of x.

    Number j * block + i is row i of the block times the j-th row of x.
    """

    def __init__(
        self,
        body: KernelBody,
        variant: MatvecVariant,
        block: int,
        rows: range,
        decoder: BlockDecoder,
    ) -> None:
        self._body = body
        self._variant = variant
        self._block = block
        self._rows = rows
        self._decoder = decoder
        self._x = body.pointer(body.scratch_slot, F32)
        self._outputs = len(rows) * block
        self._chains = max(1, _LATENCY_CHAINS // self._outputs)
        self._vectors_end = variant.in_features // decoder.smallest_step * decoder.smallest_step

    def vectors(self, *, prefetch: bool) -> list[Any]:
        """Each product spread over the lanes of a vector."""
        code, features = self._body.code, self._variant.in_features
        step, small = self._decoder.step, self._decoder.smallest_step
        whole = features // step * step
        sums = [code.splat(0.0)] * (self._outputs * self._chains)
        with code.loop(index_constant(0), index_constant(whole), step, sums) as loop:
            if prefetch:
                fetch_ahead(self._body, self._decoder, features, self._block, loop.index, step)
            loop.carried = self._step(loop.index, step, code, loop.carried)
        sums = loop.results
        for index in range(whole, self._vectors_end, small):
            sums = self._step(index_constant(index), small, code, sums)
        totals = sums[: self._outputs]
        for chain in range(self._outputs, len(sums), self._outputs):
            more = sums[chain : chain + self._outputs]
            totals = [code.add(total, part) for total, part in zip(totals, more, strict=True)]
        return totals

    def tails(self) -> list[Any]:
        """The same for the weights of a row that fill no vector, one by one; empty if there are none."""
        if self._vectors_end == self._variant.in_features:
            return []
        code = VectorCode(self._body.builder, 1)
        begin, end = index_constant(self._vectors_end), index_constant(self._variant.in_features)
        with code.loop(begin, end, 1, [code.splat(0.0)] * self._outputs) as loop:
            loop.carried = self._step(loop.index, 1, code, loop.carried)
        return loop.results

    def _step(self, index: Any, count: int, code: VectorCode, sums: Sequence[Any]) -> list[Any]:
        """`count` weights of each row, into one chain of sums after the other."""
        variant, builder, block = self._variant, self._body.builder, self._block
        sums = list(sums)
        weights = [self._decoder.vectors(row, index, count, code) for row in range(block)]
        for number in range(count // code.lanes):
            at = builder.add(index, index_constant(number * code.lanes))
            chain = number % self._chains * self._outputs if code.lanes > 1 else 0
            for j, row_of_x in enumerate(self._rows):
                x = code.load(self._x, _x_index(code, variant, row_of_x, at), "fp32")
                for i in range(block):
                    to = chain + j * block + i
                    sums[to] = code.fma(weights[i][number], x, sums[to])
        return sums


def _gathered(code: VectorCode, singles: Sequence[Any], kind: Any) -> Any:
    """Vectors of one lane as the lanes of a vector of this type; zero beyond them."""
    gathered = ir.Constant(kind, [0.0] * kind.count)
    for lane, single in enumerate(singles):
        number = code.builder.extract_element(single, ir.Constant(I32, 0))
        gathered = code.builder.insert_element(gathered, number, ir.Constant(I32, lane))
    return gathered


def _x_index(code: VectorCode, variant: MatvecVariant, row: int, index: Any) -> Any:
    """Where the widened x holds a row's numbers from `index` on: a whole vector, or one at the end."""
    builder = code.builder
    if code.lanes == LANES:
        start = builder.mul(index, index_constant(variant.rows))
        return builder.add(start, index_constant(row * LANES))
    whole = variant.in_features // LANES * LANES
    return builder.add(index, index_constant(whole * (variant.rows - 1) + row * LANES))
