"""Stored weights to vectors of float32, in LLVM IR: one decoder per family of formats."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from llvmlite import ir

from llmprof.costs.weight_formats import PACKED_TOGETHER, WeightFormat
from llmprof.engine.kernels.fp8 import FP16_SCALE, load_fp8
from llmprof.engine.kernels.native import KernelBody, cpu_features
from llmprof.engine.kernels.vector_ir import (
    F16,
    F32,
    I8,
    LANES,
    STORED_TYPES,
    VectorCode,
    index_constant,
)

LINE_BYTES: Final = 64
ELEMENTS: Final[dict[str, Any]] = {**STORED_TYPES, "fp8": I8}
"""Of a pointer to plain numbers."""
ROW_FACTORS: Final = {"int8": 1.0, "fp8": FP16_SCALE}
"""What a row of codes is to be multiplied by beside its scale; other numbers have no scale of a row."""
_TABLE_LOOKUP: Final = "llvm.x86.avx512.permvar.sf.512"
"""Picks lanes of a 16-entry table by the low 4 bits of each index (VPERMPS)."""


class BlockDecoder(Protocol):
    """Decodes a block of adjacent rows side by side."""

    step: int
    """Weights of a row that are decoded at once: those of a cache line, or a group if that is more."""
    smallest_step: int
    row_bytes: int
    """Of the codes; scales lie elsewhere."""

    def begin(self, first_row: Any) -> None:
        """Move to the block that starts at this row."""

    def prefetch(self, row: int, index: Any, count: int, ahead_bytes: Any) -> None:
        """The lines so many bytes behind weights [index, index + count) of a row."""

    def vectors(self, row: int, index: Any, count: int, code: VectorCode) -> Sequence[Any]:
        """Weights [index, index + count) of one of the block's rows, in vectors of `code.lanes`."""


class PlainDecoder:
    """Floats, and codes whose scale is applied to whole rows afterwards, with their `ROW_FACTORS`."""

    def __init__(self, body: KernelBody, number: str, in_features: int, slot: int) -> None:
        """`slot` holds the address of the weights."""
        element = ELEMENTS[number]
        self._body = body
        self._number = number
        self._in_features = in_features
        self._weights = body.pointer(slot, element)
        self._item_bytes = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1, "fp8": 1}[number]
        self.row_bytes = in_features * self._item_bytes
        self.step = max(2 * LANES, LINE_BYTES // self._item_bytes)
        self.smallest_step = LANES
        self._first: Any = None

    def begin(self, first_row: Any) -> None:
        builder = self._body.builder
        offset = builder.mul(first_row, index_constant(self._in_features))
        self._first = builder.gep(self._weights, [offset])

    def prefetch(self, row: int, index: Any, count: int, ahead_bytes: Any) -> None:
        builder = self._body.builder
        start = builder.bitcast(self._first, I8.as_pointer())
        byte = builder.mul(index, index_constant(self._item_bytes))
        offset = builder.add(builder.add(byte, ahead_bytes), index_constant(row * self.row_bytes))
        _prefetch_lines(self._body.code, start, offset, count * self._item_bytes)

    def element(self, index: Any) -> Any:
        """Address of a weight of the block's first row."""
        return self._body.builder.gep(self._first, [index])

    def vectors(self, row: int, index: Any, count: int, code: VectorCode) -> Sequence[Any]:
        builder = self._body.builder
        start = builder.add(index, index_constant(row * self._in_features))
        places = [builder.add(start, index_constant(by)) for by in range(0, count, code.lanes)]
        if self._number == "fp8":
            return [load_fp8(code, self._first, place) for place in places]
        return [code.load(self._first, place, self._number) for place in places]


class GroupScales:
    """fp16 scales (or minimums) of a block of rows, widened once per block.

    From there a scale comes into every lane by a broadcast load, which needs no arithmetic port.
    """

    def __init__(self, body: KernelBody, groups: int, rows: int, slot: int) -> None:
        self._body = body
        self._groups = groups
        self._rows = rows
        self._stored = body.pointer(slot, F16)
        self._widened = body.builder.alloca(F32, size=index_constant(rows * groups))

    def begin(self, first_row: Any) -> None:
        """Whole vectors, of which the last one may overlap the one before it."""
        builder = self._body.builder
        start = builder.mul(first_row, index_constant(self._groups))
        stored = builder.gep(self._stored, [start])
        count = self._rows * self._groups
        code = VectorCode(builder, min(LANES, count))

        def widen(index: Any) -> None:
            code.store(code.load(stored, index, "fp16"), self._widened, index, "fp32")

        last = index_constant(count - code.lanes)
        with code.loop(index_constant(0), last, code.lanes) as loop:
            widen(loop.index)
        widen(last)

    def broadcast(self, row: int, group: Any) -> Any:
        builder = self._body.builder
        index = builder.add(group, index_constant(row * self._groups))
        return self._body.code.broadcast(builder.load(builder.gep(self._widened, [index])))


class GroupedInt8Decoder(PlainDecoder):
    """int8 codes with a scale per group."""

    def __init__(
        self, body: KernelBody, fmt: WeightFormat, in_features: int, rows: int, slots: Sequence[int]
    ) -> None:
        super().__init__(body, "int8", in_features, slots[0])
        assert fmt.group_size is not None
        self._group = fmt.group_size
        self._scales = GroupScales(body, fmt.groups(in_features), rows, slots[1])
        self.step = max(LINE_BYTES, self._group)
        self.smallest_step = PACKED_TOGETHER

    def begin(self, first_row: Any) -> None:
        super().begin(first_row)
        self._scales.begin(first_row)

    def vectors(self, row: int, index: Any, count: int, code: VectorCode) -> Sequence[Any]:
        builder = self._body.builder
        codes = super().vectors(row, index, count, code)
        first_group = builder.udiv(index, index_constant(self._group))
        weights = []
        for start in range(0, count, self._group):
            group = builder.add(first_group, index_constant(start // self._group))
            scale = self._scales.broadcast(row, group)
            part = codes[start // LANES : (start + self._group) // LANES]
            weights += [code.mul(vector, scale) for vector in part]
        return weights


class Int4Decoder:
    """Blocks of 32 codes in 16 bytes, as GGUF packs them: byte i holds code i, and code i + 16 above.

    With AVX-512 the 16 possible weights of a group are a table in a register, and a code is looked
    up in it: one operation per vector, whatever scale and minimum are.
    """

    def __init__(
        self, body: KernelBody, fmt: WeightFormat, in_features: int, rows: int, slots: Sequence[int]
    ) -> None:
        assert fmt.group_size is not None
        self._body = body
        self._group = fmt.group_size
        self.row_bytes = in_features // 2
        self.step = 2 * LINE_BYTES
        self.smallest_step = PACKED_TOGETHER
        self._codes = body.pointer(slots[0], I8)
        groups = fmt.groups(in_features)
        self._scales = GroupScales(body, groups, rows, slots[1])
        self._minimums = None if fmt.symmetric else GroupScales(body, groups, rows, slots[2])
        self._has_table = "avx512f" in cpu_features()
        self._first: Any = None

    def begin(self, first_row: Any) -> None:
        builder = self._body.builder
        offset = builder.mul(first_row, index_constant(self.row_bytes))
        self._first = builder.gep(self._codes, [offset])
        self._scales.begin(first_row)
        if self._minimums is not None:
            self._minimums.begin(first_row)

    def prefetch(self, row: int, index: Any, count: int, ahead_bytes: Any) -> None:
        builder = self._body.builder
        byte = builder.udiv(index, index_constant(2))
        offset = builder.add(builder.add(byte, ahead_bytes), index_constant(row * self.row_bytes))
        _prefetch_lines(self._body.code, self._first, offset, count // 2)

    def vectors(self, row: int, index: Any, count: int, code: VectorCode) -> Sequence[Any]:
        builder = self._body.builder
        first_group = builder.udiv(index, index_constant(self._group))
        first_byte = builder.udiv(index, index_constant(2))
        weights = []
        for start in range(0, count, self._group):
            group = builder.add(first_group, index_constant(start // self._group))
            weigh = self._weigh(row, group)
            for by in range(start, min(start + self._group, count), PACKED_TOGETHER):
                byte = builder.add(first_byte, index_constant(by // 2 + row * self.row_bytes))
                both = code.zero_extend(code.load_raw(self._first, byte))
                weights += [weigh(both), weigh(code.shift_right(both, 4))]
        return weights

    def packed_codes(self, row: int, index: Any, code: VectorCode) -> Any:
        """`code.lanes` bytes of a row from weight `index` on."""
        byte = self._body.builder.udiv(index, index_constant(2))
        offset = index_constant(row * self.row_bytes)
        return code.load_raw(self._first, self._body.builder.add(byte, offset))

    def tables(self, row: int, index: Any, step: int) -> tuple[Any, Any]:
        """The 16 possible weights at column `index`, and those `step` columns further on."""
        builder = self._body.builder
        every_code = ir.Constant(
            self._body.code.vector_of(F32), [float(each) for each in range(16)]
        )
        first, second = (
            self._weights_of(row, builder.udiv(column, index_constant(self._group)))(every_code)
            for column in (index, builder.add(index, index_constant(step)))
        )
        return first, second

    def _weigh(self, row: int, group: Any) -> Any:
        """From 16 codes, each in the low 4 bits of a 32-bit lane, to the weights of a group."""
        code, builder = self._body.code, self._body.builder
        weights_of = self._weights_of(row, group)
        if self._has_table:
            every_code = ir.Constant(code.vector_of(F32), [float(each) for each in range(16)])
            table = weights_of(every_code)
            return lambda bits: code.call(_TABLE_LOOKUP, table.type, [table, bits])

        def convert(bits: Any) -> Any:
            low = builder.and_(bits, code.splat_bits(15))
            return weights_of(builder.sitofp(low, code.vector_of(F32)))

        return convert

    def _weights_of(self, row: int, group: Any) -> Callable[[Any], Any]:
        """From codes as floats to the weights of a group."""
        code = self._body.code
        scale = self._scales.broadcast(row, group)
        if self._minimums is None:
            return lambda codes: code.mul(code.add(codes, code.splat(-8.0)), scale)
        minimum = self._minimums.broadcast(row, group)
        return lambda codes: code.fma(codes, scale, minimum)


def make_decoder(
    body: KernelBody, fmt: WeightFormat, in_features: int, rows: int, slots: Sequence[int]
) -> BlockDecoder:
    """The decoder of a format for blocks of `rows` rows.

    `slots` are the arguments with the addresses of codes, scales and minimums.
    """
    if fmt.number == "int4":
        return Int4Decoder(body, fmt, in_features, rows, slots)
    if fmt.group_size is not None:
        return GroupedInt8Decoder(body, fmt, in_features, rows, slots)
    return PlainDecoder(body, fmt.number, in_features, slots[0])


def _prefetch_lines(code: VectorCode, start: Any, offset: Any, num_bytes: int) -> None:
    for line in range(0, num_bytes, LINE_BYTES):
        code.prefetch(start, code.builder.add(offset, index_constant(line)))
