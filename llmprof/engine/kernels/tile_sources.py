"""Where left-hand tiles come from: 16 adjacent rows of a weight, 32 columns each, as bf16.

bf16 weights are loaded as they lie in memory. Codes are decoded into a buffer first, by other means
than in `weight_decoders`: what counts here is the way to 16-bit numbers, and the order of columns
within a step is free as long as x follows it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, Protocol

from llvmlite import ir

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.kernels.native import KernelBody
from llmprof.engine.kernels.tiles import ROW_BYTES, TILE_COLUMNS, TILE_ROWS, Tiles
from llmprof.engine.kernels.vector_ir import (
    I8,
    I16,
    I32,
    LANES,
    VectorCode,
    index_constant,
)
from llmprof.engine.kernels.weight_decoders import (
    BlockDecoder,
    GroupedInt8Decoder,
    Int4Decoder,
    PlainDecoder,
)

STEP_COLUMNS: Final = 2 * TILE_COLUMNS
"""Of a step: two tiles."""
_TILE_BYTES: Final = TILE_ROWS * ROW_BYTES
_BUFFER_BYTES: Final = 2 * _TILE_BYTES
_WORDS: Final = ir.VectorType(I16, TILE_COLUMNS)
_LOOK_UP: Final = "llvm.x86.avx512.permvar.hi.512"
"""Picks 16-bit lanes of a 32-entry table by the low 5 bits of each index (VPERMW)."""


class TileSource(Protocol):
    """Fills two left-hand tiles from a block of 16 rows, one step of 64 columns after the other."""

    def decode(self, index: Any) -> None:
        """Get the step at column `index` ready: one step ahead of `load`."""

    def load(self, tiles: Tiles, numbers: Sequence[int], index: Any) -> None:
        """The step at column `index`, into the tiles with these numbers."""

    def pairs(self, code: VectorCode, x: Any, index: Any, tile: int) -> Any:
        """Emit 16 pairs of x (`i16*`), each as 32 bits, in the order of a tile's columns."""


class StoredTiles:
    """bf16 weights as they are."""

    def __init__(self, body: KernelBody, decoder: PlainDecoder) -> None:
        self._builder = body.builder
        self._decoder = decoder

    def decode(self, index: Any) -> None:
        pass

    def load(self, tiles: Tiles, numbers: Sequence[int], index: Any) -> None:
        for tile, number in enumerate(numbers):
            column = self._builder.add(index, index_constant(tile * TILE_COLUMNS))
            tiles.load(number, self._decoder.element(column), self._decoder.row_bytes)

    def pairs(self, code: VectorCode, x: Any, index: Any, tile: int) -> Any:
        return _words(code, x, code.builder.add(index, index_constant(tile * TILE_COLUMNS)))


class _DecodedTiles(ABC):
    """Two buffers in turn, which stay in the first-level cache.

    A tile is loaded from a buffer one step after it was written: a load right behind the stores
    would wait for them to reach the cache.
    """

    def __init__(self, body: KernelBody) -> None:
        self._body = body
        self._buffers = body.builder.alloca(I8, size=index_constant(2 * _BUFFER_BYTES))
        self._buffers.align = ROW_BYTES

    def decode(self, index: Any) -> None:
        builder, buffer = self._body.builder, self._buffer(index)
        for row in range(TILE_ROWS):
            for tile, words in enumerate(self._decode_row(row, index)):
                offset = index_constant(tile * _TILE_BYTES + row * ROW_BYTES)
                at = builder.bitcast(builder.gep(buffer, [offset]), _WORDS.as_pointer())
                builder.store(words, at).align = ROW_BYTES

    def load(self, tiles: Tiles, numbers: Sequence[int], index: Any) -> None:
        buffer = self._buffer(index)
        for tile, number in enumerate(numbers):
            at = self._body.builder.gep(buffer, [index_constant(tile * _TILE_BYTES)])
            tiles.load(number, at, ROW_BYTES)

    def _buffer(self, index: Any) -> Any:
        builder = self._body.builder
        odd_step = builder.and_(index, index_constant(STEP_COLUMNS))
        offset = builder.mul(odd_step, index_constant(_BUFFER_BYTES // STEP_COLUMNS))
        return builder.gep(self._buffers, [offset])

    @abstractmethod
    def _decode_row(self, row: int, index: Any) -> tuple[Any, Any]:
        """The row's part of both tiles, each as 32 bf16 numbers."""


class Int8Tiles(_DecodedTiles):
    """Columns i and i + 16 of 32 are a pair.

    Two vectors of float32, the one's upper halves shifted below the other's.
    """

    def __init__(self, body: KernelBody, decoder: PlainDecoder) -> None:
        super().__init__(body)
        self._decoder = decoder
        self._exact = not isinstance(decoder, GroupedInt8Decoder)
        """A code alone has no bits that bf16 cannot hold."""

    def pairs(self, code: VectorCode, x: Any, index: Any, tile: int) -> Any:
        builder = code.builder
        low, high = (
            code.zero_extend(
                code.load_raw(x, builder.add(index, index_constant(tile * TILE_COLUMNS + half)))
            )
            for half in (0, LANES)
        )
        return builder.or_(low, code.shift_left(high, 16))

    def _decode_row(self, row: int, index: Any) -> tuple[Any, Any]:
        vectors = self._decoder.vectors(row, index, STEP_COLUMNS, self._body.code)
        return self._packed(*vectors[:2]), self._packed(*vectors[2:])

    def _packed(self, low: Any, high: Any) -> Any:
        code = self._body.code
        if self._exact:
            return _upper_halves(code, code.f32_to_bits(low), code.f32_to_bits(high))
        return interleaved(code, low, high)


class Int4Tiles(_DecodedTiles):
    """32 bytes hold two pieces of 32 codes; their low halves make one tile, their high halves the other.

    The 16 possible weights of each piece's group are every other entry of a table in a register.
    """

    def __init__(self, body: KernelBody, decoder: Int4Decoder) -> None:
        super().__init__(body)
        self._decoder = decoder

    def pairs(self, code: VectorCode, x: Any, index: Any, tile: int) -> Any:
        half = VectorCode(code.builder, LANES // 2)
        first, second = (
            _words(half, x, code.builder.add(index, index_constant(tile * LANES + piece)))
            for piece in (0, TILE_COLUMNS)
        )
        lanes = ir.Constant(code.vector_of(I32), list(range(LANES)))
        return code.builder.shuffle_vector(first, second, lanes)

    def _decode_row(self, row: int, index: Any) -> tuple[Any, Any]:
        code, builder = self._body.code, self._body.builder
        table = interleaved(code, *self._decoder.tables(row, index, TILE_COLUMNS))
        packed = self._decoder.packed_codes(row, index, VectorCode(builder, TILE_COLUMNS))
        codes = builder.zext(packed, _WORDS)
        piece = ir.Constant(_WORDS, [0] * LANES + [1] * LANES)
        twice_low = builder.shl(codes, ir.Constant(_WORDS, [1] * TILE_COLUMNS))
        twice_high = builder.lshr(codes, ir.Constant(_WORDS, [3] * TILE_COLUMNS))
        even = ir.Constant(_WORDS, [2 * 15] * TILE_COLUMNS)
        low, high = (
            code.call(_LOOK_UP, _WORDS, [table, builder.or_(builder.and_(twice, even), piece)])
            for twice in (twice_low, twice_high)
        )
        return low, high


def interleaved(code: VectorCode, low: Any, high: Any) -> Any:
    """Two vectors of float32 as one of bf16, lane i of each side by side; rounded to nearest.

    Halves are rounded away from zero. VCVTNE2PS2BF16, made for this, takes longer (Sapphire Rapids).
    """
    half = code.splat_bits(0x8000)
    low, high = (code.builder.add(code.f32_to_bits(vector), half) for vector in (low, high))
    return _upper_halves(code, low, code.builder.and_(high, code.splat_bits(0xFFFF0000)))


def _upper_halves(code: VectorCode, low: Any, high: Any) -> Any:
    """Of 32-bit numbers; the lower halves of `high` are zero."""
    return code.builder.bitcast(code.builder.or_(code.shift_right(low, 16), high), _WORDS)


def _words(code: VectorCode, x: Any, index: Any) -> Any:
    """Adjacent numbers two by two, `code.lanes` pairs."""
    builder = code.builder
    start = builder.gep(x, [index])
    return code.load_raw(builder.bitcast(start, I32.as_pointer()), index_constant(0))


def make_tile_source(body: KernelBody, fmt: WeightFormat, decoder: BlockDecoder) -> TileSource:
    """The tiles of a format whose rows `decoder` walks through."""
    if isinstance(decoder, Int4Decoder):
        return Int4Tiles(body, decoder)
    assert isinstance(decoder, PlainDecoder)
    return StoredTiles(body, decoder) if fmt.number == "bf16" else Int8Tiles(body, decoder)
