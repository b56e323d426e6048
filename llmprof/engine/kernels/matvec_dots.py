"""The loop nest of y = x W^T + b in integers: packed codes times activations as 15-bit numbers.

Turning 64 codes into float32 takes 12 operations of a vector unit before the first multiplication;
VPDPBUSD multiplies and adds all 64 at once. A core of Sapphire Rapids then waits for memory again,
where the float nest reads int8 in groups of 32 at two thirds of the read ceiling.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from llmprof.engine.kernels.integer_activations import (
    GROUPS_AT_ONCE,
    LOW_BITS,
    VECTOR_BYTES,
    IntegerActivations,
    IntegerLayout,
)
from llmprof.engine.kernels.matvec_plan import (
    CODES,
    MINIMUMS,
    PREFETCH_BYTES,
    SCALES,
    MatvecVariant,
    X,
    blocks_of_rows,
    fetch_ahead,
    first_row,
    write_outputs,
)
from llmprof.engine.kernels.native import KernelBody, cpu_features
from llmprof.engine.kernels.vector_ir import F16, I32, LANES, VectorCode, index_constant
from llmprof.engine.kernels.vector_math import shuffled
from llmprof.engine.kernels.weight_decoders import PlainDecoder

MOST_ROWS: Final = 2
"""Of x; from there on AMX or floats are faster. Two Sapphire Rapids cores, GB/s of packed weights from
memory (read ceiling 32) in integers / floats: int8 [8192, 2048] at 1 row 23/21, at 2 rows 22/17; int8
[2048, 8192] 26/25 and 25/24; int4 [2048, 8192] 20/16 and 15/12; from a cache 53/30 and 30/24."""
_DOT: Final = "llvm.x86.avx512.vpdpbusd.512"
"""Adds products of 4 unsigned with 4 signed bytes to each 32-bit lane."""
_BLOCK: Final = 4
"""Rows of W at once."""


@functools.cache
def integer_dots_available() -> bool:
    """Whether this CPU multiplies bytes in vectors of 64."""
    return {"avx512f", "avx512bw", "avx512vnni"} <= cpu_features()


def dots_fit(variant: MatvecVariant) -> bool:
    """Whether this nest can do a product; float32 activations keep their precision in another one."""
    weights = variant.weights
    return (
        integer_dots_available()
        and variant.activations == "bf16"
        and variant.rows <= MOST_ROWS
        and weights.number in ("int8", "int4")
        and weights.group_size is not None
        and weights.groups(variant.in_features) >= GROUPS_AT_ONCE
        and variant.in_features >= _layout(variant).columns
        and not variant.few_outputs
    )


def scratch_bytes(variant: MatvecVariant) -> int:
    """Of x."""
    return variant.rows * _layout(variant).row_scratch_bytes


def arrange_activations(body: KernelBody, variant: MatvecVariant) -> None:
    """Turn x [rows, in] into pairs of bytes."""
    activations = IntegerActivations(body, _layout(variant))
    activations.arrange(X, variant.rows, variant.activations, _offset(variant))


def multiply(body: KernelBody, variant: MatvecVariant) -> None:
    """One thread's rows of W."""
    code, layout = body.code, _layout(variant)
    share, last = blocks_of_rows(body, _BLOCK)
    with code.loop(*share, 1) as loop:
        first = first_row(body, loop.index, last, _BLOCK)
        block = _Block(body, variant, first)
        totals = [code.splat(0.0)] * (variant.rows * _BLOCK)
        with code.loop(index_constant(0), index_constant(layout.chunks), 1, totals) as chunk:
            chunk.carried = block.chunk(chunk.index, chunk.carried)
        totals = block.rest(chunk.results)
        at_once = LANES // _BLOCK
        for j in range(0, variant.rows, at_once):
            rows = range(j, min(j + at_once, variant.rows))
            sums = code.sums(totals[j * _BLOCK : (j + len(rows)) * _BLOCK])
            write_outputs(body, variant, rows, first, _BLOCK, sums)


def _layout(variant: MatvecVariant) -> IntegerLayout:
    return IntegerLayout(variant.weights, variant.in_features)


def _offset(variant: MatvecVariant) -> float:
    """What the codes as unsigned numbers are too large by, or 1 for weights with a minimum."""
    if not variant.weights.symmetric:
        return 1.0
    return -128.0 if variant.weights.number == "int8" else -8.0


@dataclass(frozen=True, slots=True)
class _Vector:
    """64 bytes of every row of a block."""

    byte: Any
    """Offset in a row of W."""
    x: Any
    """Offset in the bytes of x."""
    lane_groups: Sequence[int]


class _Block:
    """Adjacent rows of W times all rows of x; total j * block + i is row i of W times row j of x."""

    def __init__(self, body: KernelBody, variant: MatvecVariant, first: Any) -> None:
        self._body = body
        self._variant = variant
        self._layout = _layout(variant)
        self._x = IntegerActivations(body, self._layout)
        self._first = first
        self._bytes = PlainDecoder(body, "int8", self._layout.row_bytes, CODES)
        self._bytes.begin(first)

    def chunk(self, number: Any, totals: Sequence[Any]) -> list[Any]:
        """As many whole groups as fill a vector of scales."""
        builder, layout = self._body.builder, self._layout
        group = builder.mul(number, index_constant(GROUPS_AT_ONCE))
        vectors = layout.chunk // layout.columns
        byte = builder.mul(number, index_constant(vectors * VECTOR_BYTES))
        x = builder.mul(byte, index_constant(layout.halves))
        corrections = [self._x.corrections(row, group) for row in range(self._variant.rows)]
        scales, totals = self._scaled(group, corrections, totals)
        self._fetch_scales(group)
        for vector in range(vectors):
            place = _Vector(
                builder.add(byte, index_constant(vector * VECTOR_BYTES)),
                builder.add(x, index_constant(vector * VECTOR_BYTES * layout.halves)),
                layout.lane_groups(vector * layout.columns, 0),
            )
            fetch_ahead(self._body, self._bytes, layout.row_bytes, _BLOCK, place.byte, VECTOR_BYTES)
            totals = self._dots(place, scales, totals)
        return totals

    def rest(self, totals: Sequence[Any]) -> list[Any]:
        """The columns of a row that fill no chunk."""
        layout = self._layout
        begin = layout.chunks * layout.chunk
        if begin == layout.in_features:
            return list(totals)
        corrections = [self._x.last_corrections(row) for row in range(self._variant.rows)]
        scales, totals = self._scaled(index_constant(layout.last_groups), corrections, totals)
        whole_end = layout.in_features // layout.columns * layout.columns
        for column in range(begin, whole_end, layout.columns):
            byte = column // layout.halves
            totals = self._dots(self._place(column, byte * layout.halves), scales, totals)
        if layout.repeats:
            start = layout.in_features - layout.columns
            totals = self._dots(self._place(start, layout.last_vector), scales, totals)
        return list(totals)

    def _place(self, column: int, x: int) -> _Vector:
        layout = self._layout
        return _Vector(
            index_constant(column // layout.halves),
            index_constant(x),
            layout.lane_groups(column, layout.last_groups),
        )

    def _scaled(
        self, group: Any, corrections: Sequence[Any], totals: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Scales of W times scales of x, and the totals with the corrections of these groups."""
        code, totals = self._body.code, list(totals)
        scales = []
        for i in range(_BLOCK):
            of_weights = self._stored(SCALES, i, group)
            factor = (
                of_weights if self._variant.weights.symmetric else self._stored(MINIMUMS, i, group)
            )
            for j in range(self._variant.rows):
                to = j * _BLOCK + i
                totals[to] = code.fma(factor, corrections[j], totals[to])
                scales.append(code.mul(of_weights, self._x.scales(j, group)))
        return scales, totals

    def _fetch_scales(self, group: Any) -> None:
        """Those of the block whose codes are fetched now: too few side by side for the hardware to see."""
        builder, layout = self._body.builder, self._layout
        blocks = -(-PREFETCH_BYTES // (_BLOCK * layout.row_bytes))
        for slot in (SCALES,) if self._variant.weights.symmetric else (SCALES, MINIMUMS):
            stored = self._body.pointer(slot, F16)
            for row in range(blocks * _BLOCK, (blocks + 1) * _BLOCK):
                ahead = builder.add(self._first, index_constant(row))
                start = builder.mul(ahead, index_constant(layout.groups))
                self._body.code.prefetch(stored, builder.add(start, group))

    def _stored(self, slot: int, row: int, group: Any) -> Any:
        """fp16 numbers of a row from a group on."""
        builder, groups = self._body.builder, self._layout.groups
        start = builder.mul(builder.add(self._first, index_constant(row)), index_constant(groups))
        stored = self._body.pointer(slot, F16)
        return self._body.code.load(stored, builder.add(start, group), "fp16")

    def _dots(self, place: _Vector, scales: Sequence[Any], totals: Sequence[Any]) -> list[Any]:
        code, builder, rows = self._body.code, self._body.builder, self._variant.rows
        totals, halves = list(totals), range(self._layout.halves)
        x = [
            [[self._x.bytes_of(j, part, half, place.x) for half in halves] for part in range(2)]
            for j in range(rows)
        ]
        for i in range(_BLOCK):
            codes = self._codes(i, place.byte)
            for j in range(rows):
                high, low = x[j]
                dots = code.splat_bits(0)
                for unsigned, signed in zip(codes, high, strict=True):
                    dots = code.call(_DOT, dots.type, [dots, unsigned, signed])
                dots = code.shift_left(dots, LOW_BITS)
                for unsigned, signed in zip(codes, low, strict=True):
                    dots = code.call(_DOT, dots.type, [dots, unsigned, signed])
                numbers = builder.sitofp(dots, totals[0].type)
                of_lanes = scales[i * rows + j]
                scale = shuffled(code, of_lanes, of_lanes, place.lane_groups)
                to = j * _BLOCK + i
                totals[to] = code.fma(numbers, scale, totals[to])
        return totals

    def _codes(self, row: int, byte: Any) -> list[Any]:
        """64 bytes of a row as unsigned codes, 4 to a lane."""
        code, builder = self._body.code, self._body.builder
        at = builder.add(byte, index_constant(row * self._layout.row_bytes))
        raw = VectorCode(builder, VECTOR_BYTES).load_raw(self._bytes.element(index_constant(0)), at)
        packed = builder.bitcast(raw, code.vector_of(I32))
        if self._layout.halves == 1:
            return [builder.xor(packed, code.splat_bits(0x80808080))]
        low = code.splat_bits(0x0F0F0F0F)
        return [builder.and_(packed, low), builder.and_(code.shift_right(packed, 4), low)]
