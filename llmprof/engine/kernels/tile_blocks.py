"""Blocks of 32 x 32 sums in four tiles, and the ways in and out of them, as LLVM IR.

Two left-hand and two right-hand tiles make four products: as many loads as products, which is the
least that eight tiles allow, and each product waits for none of the three before it.
"""

from typing import Any, Final

from llvmlite import ir

from llmprof.engine.kernels.tiles import ROW_BYTES, TILE_COLUMNS, TILE_ROWS, Tiles, TileShape
from llmprof.engine.kernels.vector_ir import (
    F32,
    I16,
    I32,
    LANES,
    BFloat,
    VectorCode,
    index_constant,
)

BLOCK: Final = 2 * TILE_ROWS
"""Rows, and columns, of sums."""
TILE_NUMBERS: Final = TILE_ROWS * TILE_COLUMNS
"""bf16 numbers in a tile."""
SHAPES: Final = dict.fromkeys(range(8), TileShape(TILE_ROWS, ROW_BYTES))

_SUMS: Final = ((0, 1), (2, 3))
_LEFT: Final = (4, 5)
_RIGHT: Final = (6, 7)
_PAIR_TYPE: Final = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"


def zero_sums(tiles: Tiles) -> None:
    for row in _SUMS:
        for tile in row:
            tiles.zero(tile)


def load_sums(tiles: Tiles, block: Any, builder: Any) -> None:
    """From float32 [32, 32]."""
    for tile, at in _sum_addresses(block, builder):
        tiles.load(tile, at, 4 * BLOCK)


def store_sums(tiles: Tiles, block: Any, builder: Any) -> None:
    """To float32 [32, 32]."""
    for tile, at in _sum_addresses(block, builder):
        tiles.store(tile, at, 4 * BLOCK)


def multiply_step(
    tiles: Tiles, left: Any, left_stride: int, right: Any, right_stride: int, builder: Any
) -> None:
    """32 more columns of the left-hand matrix times as many rows of the right-hand one.

    Args:
        tiles: with `SHAPES`.
        left: address of 32 rows of 32 bf16 numbers.
        left_stride: bytes from a row to the next.
        right: address of the first of two right-hand tiles, each [16 pairs, 16 columns, 2].
        right_stride: bytes from a tile to the next; its rows are adjacent.
        builder: where they are emitted.
    """
    lefts = [builder.gep(left, [index_constant(n * TILE_ROWS * left_stride // 2)]) for n in (0, 1)]
    rights = [builder.gep(right, [index_constant(n * right_stride // 2)]) for n in (0, 1)]
    tiles.load(_RIGHT[0], rights[0], ROW_BYTES)
    tiles.load(_LEFT[0], lefts[0], left_stride)
    tiles.multiply_add(_SUMS[0][0], _LEFT[0], _RIGHT[0])
    tiles.load(_LEFT[1], lefts[1], left_stride)
    tiles.multiply_add(_SUMS[1][0], _LEFT[1], _RIGHT[0])
    tiles.load(_RIGHT[1], rights[1], ROW_BYTES)
    tiles.multiply_add(_SUMS[0][1], _LEFT[0], _RIGHT[1])
    tiles.multiply_add(_SUMS[1][1], _LEFT[1], _RIGHT[1])


def transpose_pairs(code: VectorCode, rows: list[Any], out: Any) -> None:
    """16 rows of 16 pairs (32 bits each) to a right-hand tile at `out` (`i32*`)."""
    for pair, column in enumerate(code.transposed(rows)):
        code.store_raw(column, out, index_constant(pair * LANES))


def pairs_of(code: VectorCode, numbers: Any, index: Any) -> Any:
    """16 adjacent pairs of bf16 numbers (`i16*`) from `index` on, as 32 bits each."""
    at = code.builder.bitcast(code.builder.gep(numbers, [index]), I32.as_pointer())
    return code.load_raw(at, index_constant(0))


def narrow_pair(code: VectorCode, low: Any, high: Any) -> Any:
    """Two vectors of float32 as 32 bf16 numbers, one behind the other; rounded to nearest even."""
    words = ir.VectorType(BFloat(), 2 * LANES)
    narrow = code.call(_PAIR_TYPE, words, [high, low])
    return code.builder.bitcast(narrow, ir.VectorType(I16, 2 * LANES))


def _sum_addresses(block: Any, builder: Any) -> list[tuple[int, Any]]:
    numbers = builder.bitcast(block, F32.as_pointer())
    return [
        (tile, builder.gep(numbers, [index_constant(i * TILE_ROWS * BLOCK + j * LANES)]))
        for i, row in enumerate(_SUMS)
        for j, tile in enumerate(row)
    ]


def blocks_of(builder: Any, count: Any) -> Any:
    """Blocks of 32 that hold so many."""
    return builder.udiv(builder.add(count, index_constant(BLOCK - 1)), index_constant(BLOCK))


def block_start(builder: Any, block: Any, count: Any) -> Any:
    """Of one of the blocks that hold `count`, 32 or more: the last one ends where they do.

    It may do some of the one before it again, to the same result.
    """
    wanted = builder.mul(block, index_constant(BLOCK))
    return smaller(builder, wanted, builder.sub(count, index_constant(BLOCK)))


def smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.icmp_signed("<", a, b), a, b)
