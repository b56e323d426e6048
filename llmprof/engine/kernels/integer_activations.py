"""Activations as pairs of bytes that integer dot products take, and the sums that belong to them.

A group of x, as long as the groups of the weights, is q * scale with whole numbers q of 15 bits (bf16
has 8), split into bytes: q = 128 high + low. One scale serves the group, so the largest number of the
group bounds the error: 1/32512 of it.
"""

from dataclasses import dataclass
from typing import Any, Final

from llvmlite import ir

from llmprof.costs.weight_formats import PACKED_TOGETHER, WeightFormat
from llmprof.engine.kernels.native import KernelBody
from llmprof.engine.kernels.vector_ir import (
    F32,
    I8,
    I32,
    LANES,
    STORED_TYPES,
    VectorCode,
    index_constant,
)
from llmprof.engine.kernels.vector_math import join_lanes, larger, unary

LOW_BITS: Final = 7
VECTOR_BYTES: Final = 64
GROUPS_AT_ONCE: Final = LANES
"""Scales in a vector."""
_LARGEST: Final = 127 << LOW_BITS
_HALF: Final = 16
"""Columns of a block of 32 whose codes lie in one half of its bytes."""


@dataclass(frozen=True, slots=True)
class IntegerLayout:
    """Columns of packed weights and of x, in vectors of 64 bytes.

    A vector of int8 codes holds 64 columns, one of int4 codes 128: then x has two vectors for it, for
    the low and for the high halves of the bytes. Where a row ends inside of a vector, a last vector
    ends with the row instead, and x is zero in the columns that it repeats.
    """

    weights: WeightFormat
    in_features: int

    @property
    def group(self) -> int:
        assert self.weights.group_size is not None
        return self.weights.group_size

    @property
    def groups(self) -> int:
        return self.weights.groups(self.in_features)

    @property
    def halves(self) -> int:
        """Vectors of x for one of codes."""
        return 2 if self.weights.number == "int4" else 1

    @property
    def columns(self) -> int:
        """Of a vector of codes."""
        return VECTOR_BYTES * self.halves

    @property
    def row_bytes(self) -> int:
        """Of codes."""
        return self.in_features // self.halves

    @property
    def chunk(self) -> int:
        """Columns whose scales fill one vector."""
        return GROUPS_AT_ONCE * self.group

    @property
    def chunks(self) -> int:
        """Whole ones in a row."""
        return self.in_features // self.chunk

    @property
    def last_groups(self) -> int:
        """The first group of the last vector of scales, which may repeat some."""
        return self.groups - GROUPS_AT_ONCE

    @property
    def repeats(self) -> bool:
        """Whether the last vector of codes repeats columns."""
        return self.in_features % self.columns != 0

    @property
    def last_vector(self) -> int:
        """Offset in `high` and `low` of what the repeating vector is multiplied with."""
        return -(-self.in_features // self.columns) * VECTOR_BYTES * self.halves

    @property
    def part_bytes(self) -> int:
        """Of `high`, and of `low`."""
        return self.last_vector + VECTOR_BYTES * self.halves

    @property
    def row_scratch_bytes(self) -> int:
        """`high`, `low`, then float32: a scale and a correction per group, and the last corrections."""
        floats = 2 * self.groups + GROUPS_AT_ONCE
        return 2 * self.part_bytes + -(-4 * floats // VECTOR_BYTES) * VECTOR_BYTES

    def lane_groups(self, first_column: int, first_group: int) -> list[int]:
        """Of each 32-bit lane of a vector of codes: its group, counted from the first of a vector of scales.

        0 where it only repeats columns.
        """
        if self.halves == 1:
            starts = [first_column + 4 * lane for lane in range(LANES)]
        else:
            starts = [first_column + PACKED_TOGETHER * (lane // 4) for lane in range(LANES)]
        return [max(0, start // self.group - first_group) for start in starts]


class IntegerActivations:
    """Emits the rearranging of x, and what the dot products need of it."""

    def __init__(self, body: KernelBody, layout: IntegerLayout) -> None:
        self._body = body
        self._layout = layout
        self._scratch = body.pointer(body.scratch_slot, I8)

    def arrange(self, x_slot: int, rows: int, activations: str, offset: float) -> None:
        """Fill the scratch memory from x [rows, in].

        `offset` times the sum of a group of x belongs to every weight of the group beside its code.
        """
        layout, builder = self._layout, self._body.builder
        x = self._body.pointer(x_slot, STORED_TYPES[activations])
        blocks = layout.group // PACKED_TOGETHER
        whole = layout.in_features // layout.group
        for row in range(rows):
            source = builder.gep(x, [index_constant(row * layout.in_features)])
            with self._body.code.loop(index_constant(0), index_constant(whole), 1) as loop:
                self._arrange_group(row, source, loop.index, blocks, activations, offset)
            rest = layout.in_features % layout.group // PACKED_TOGETHER
            if rest:
                group = index_constant(whole)
                self._arrange_group(row, source, group, rest, activations, offset)
            self._arrange_last(row)

    def bytes_of(self, row: int, part: int, half: int, offset: Any) -> Any:
        """A vector of bytes as 32-bit lanes; `part` 0 is high, 1 is low."""
        start = self._bytes_start(row, part) + VECTOR_BYTES * half
        at = self._body.builder.add(offset, index_constant(start))
        raw = VectorCode(self._body.builder, VECTOR_BYTES).load_raw(self._scratch, at)
        return self._body.builder.bitcast(raw, self._body.code.vector_of(I32))

    def scales(self, row: int, group: Any) -> Any:
        return self._floats(row, group)

    def corrections(self, row: int, group: Any) -> Any:
        """What the sums of `GROUPS_AT_ONCE` groups are short of, per unit of the weights' scale."""
        return self._floats(row, self._body.builder.add(group, index_constant(self._layout.groups)))

    def last_corrections(self, row: int) -> Any:
        """The same for the last vector of scales; zero for groups that it repeats."""
        return self._floats(row, index_constant(2 * self._layout.groups))

    def _arrange_group(
        self, row: int, source: Any, group: Any, blocks: int, activations: str, offset: float
    ) -> None:
        code, builder, layout = self._body.code, self._body.builder, self._layout
        first = builder.mul(group, index_constant(layout.group // PACKED_TOGETHER))
        places, vectors = [], []
        for number in range(blocks):
            block = builder.add(first, index_constant(number))
            for half in range(2):
                column = builder.mul(block, index_constant(PACKED_TOGETHER))
                at = builder.add(column, index_constant(half * _HALF))
                vectors.append(code.load(source, at, activations))
                places.append(self._place(block, half))
        scale, inverse = self._scale_of(vectors)
        total = code.splat_bits(0)
        for place, vector in zip(places, vectors, strict=True):
            whole = unary(code, "llvm.rint", code.mul(vector, inverse))
            q = builder.fptosi(whole, code.vector_of(I32))
            total = builder.add(total, q)
            rounded = builder.add(q, code.splat_bits(1 << (LOW_BITS - 1)))
            high = builder.ashr(rounded, code.splat_bits(LOW_BITS))
            low = builder.sub(q, code.shift_left(high, LOW_BITS))
            for part, integers in enumerate((high, low)):
                at = builder.add(place, index_constant(self._bytes_start(row, part)))
                code.store_raw(builder.trunc(integers, code.vector_of(I8)), self._scratch, at)
        total = code.call(f"llvm.vector.reduce.add.v{LANES}i32", I32, [total])
        correction = builder.fmul(builder.sitofp(total, F32), ir.Constant(F32, offset))
        self._store_float(row, group, scale)
        after = builder.add(group, index_constant(layout.groups))
        self._store_float(row, after, builder.fmul(correction, scale))

    def _scale_of(self, vectors: list[Any]) -> tuple[Any, Any]:
        """The scale as a scalar, its inverse in every lane; what is no number becomes the scale."""
        code, builder = self._body.code, self._body.builder
        largest, nothing = code.splat(0.0), code.splat(0.0)
        for vector in vectors:
            largest = larger(code, unary(code, "llvm.fabs", vector), largest)
            nothing = code.fma(vector, code.splat(0.0), nothing)
        largest = join_lanes(code, largest, LANES, larger)
        inverse = builder.fdiv(code.splat(float(_LARGEST)), largest)
        is_zero = builder.fcmp_ordered("==", largest, code.splat(0.0))
        inverse = builder.select(is_zero, code.splat(0.0), inverse)
        top = builder.extract_element(largest, ir.Constant(I32, 0))
        scale = builder.fmul(top, ir.Constant(F32, 1.0 / _LARGEST))
        return builder.fadd(scale, code.sum(nothing)), inverse

    def _place(self, block: Any, half: int) -> Any:
        """Offset of 16 columns of a block of 32, in the order in which codes meet them."""
        builder = self._body.builder
        if self._layout.halves == 1:
            start = builder.mul(block, index_constant(PACKED_TOGETHER))
            return builder.add(start, index_constant(half * _HALF))
        vector = builder.mul(builder.udiv(block, index_constant(4)), index_constant(2 * 64))
        within = builder.mul(builder.urem(block, index_constant(4)), index_constant(_HALF))
        return builder.add(builder.add(vector, within), index_constant(half * VECTOR_BYTES))

    def _arrange_last(self, row: int) -> None:
        """Zeros, then the columns and corrections that no vector before held."""
        layout, builder = self._layout, self._body.builder
        bytes16 = VectorCode(builder, _HALF)
        if layout.repeats:
            blocks = layout.in_features // PACKED_TOGETHER
            in_vector = layout.columns // PACKED_TOGETHER
            first_new = blocks // in_vector * in_vector
            zeros = ir.Constant(bytes16.vector_of(I8), [0] * _HALF)
            for part in range(2):
                start = self._bytes_start(row, part)
                for place in range(in_vector):
                    block = blocks - in_vector + place
                    for half in range(2):
                        old = builder.add(
                            self._place(index_constant(block), half), index_constant(start)
                        )
                        piece = zeros
                        if block >= first_new:
                            piece = bytes16.load_raw(self._scratch, old)
                        new = builder.add(
                            self._place(index_constant(place), half),
                            index_constant(start + layout.last_vector),
                        )
                        bytes16.store_raw(piece, self._scratch, new)
        for lane in range(GROUPS_AT_ONCE):
            group = layout.last_groups + lane
            number: Any = ir.Constant(F32, 0.0)
            if group >= layout.chunks * GROUPS_AT_ONCE:
                number = builder.load(
                    self._float_address(row, index_constant(layout.groups + group))
                )
            self._store_float(row, index_constant(2 * layout.groups + lane), number)

    def _bytes_start(self, row: int, part: int) -> int:
        return row * self._layout.row_scratch_bytes + part * self._layout.part_bytes

    def _float_address(self, row: int, index: Any) -> Any:
        builder, layout = self._body.builder, self._layout
        start = row * layout.row_scratch_bytes + 2 * layout.part_bytes
        first = builder.gep(self._scratch, [index_constant(start)])
        return builder.gep(builder.bitcast(first, F32.as_pointer()), [index])

    def _floats(self, row: int, index: Any) -> Any:
        address = self._float_address(row, index)
        return self._body.code.load(address, index_constant(0), "fp32")

    def _store_float(self, row: int, index: Any, number: Any) -> None:
        self._body.builder.store(number, self._float_address(row, index))
