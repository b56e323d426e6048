"""The loop nest of y = x W^T + b on a CPU with AMX: bf16 activations, up to 16 rows at one price.

A block of 16 rows of W is the left-hand matrix and x^T the right-hand one: weights are loaded as they
lie in memory, and only x is rearranged, once per call. Arithmetic is in float32 on bf16 factors; codes
of groups are multiplied by their scales and rounded to bf16 first, as for a product of many rows.
"""

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
from llmprof.engine.kernels.tile_sources import STEP_COLUMNS, TileSource, make_tile_source
from llmprof.engine.kernels.tiles import (
    ROW_BYTES,
    TILE_COLUMNS,
    TILE_ROWS,
    Tiles,
    TileShape,
    tiles_available,
)
from llmprof.engine.kernels.vector_ir import F32, I16, I32, LANES, VectorCode, index_constant
from llmprof.engine.kernels.weight_decoders import BlockDecoder, make_decoder

MOST_ROWS: Final = 2 * TILE_ROWS
"""Of x: two right-hand tiles share each tile of weights."""
_SUMS: Final = ((0, 1), (2, 3))
"""Numbers of tiles, for the first 16 rows of x and for the rest. A step has two products for each: one
waits 52 cycles for another in the same sums, but only 16 for the multiplier."""
_LEFT: Final = (4, 5)
_RIGHT: Final = (6, 7)


def tiles_fit(variant: MatvecVariant) -> bool:
    """Whether this nest can do a product."""
    return (
        tiles_available()
        and variant.rows <= MOST_ROWS
        and variant.activations == "bf16"
        and variant.weights.number in ("bf16", "fp8", "int8", "int4")
        and variant.in_features % STEP_COLUMNS == 0
        and not variant.few_outputs
    )


def scratch_bytes(variant: MatvecVariant) -> int:
    """Of x."""
    return 2 * variant.rows * variant.in_features


def arrange_activations(body: KernelBody, variant: MatvecVariant) -> None:
    """Rearrange x [rows, in] to tiles [16, rows of the part, 2] of pairs of columns."""
    builder, code = body.builder, body.code
    x, out = body.pointer(X, I16), body.pointer(body.scratch_slot, I32)
    _, source = _source(body, variant)
    end = index_constant(variant.in_features)
    for part in _parts(variant.rows):
        for row in part:
            own = builder.gep(x, [index_constant(row * variant.in_features)])
            with code.loop(index_constant(0), end, STEP_COLUMNS) as loop:
                for tile in range(len(_LEFT)):
                    pairs = source.pairs(code, own, loop.index, tile)
                    start = _x_index(builder, variant, part, loop.index, tile)
                    for lane in range(LANES):
                        offset = index_constant(lane * len(part) + row - part.start)
                        pair = builder.extract_element(pairs, ir.Constant(I32, lane))
                        builder.store(pair, builder.gep(out, [builder.add(start, offset)]))


def multiply(body: KernelBody, variant: MatvecVariant) -> None:
    """One thread's rows of W."""
    builder, code, features = body.builder, body.code, variant.in_features
    decoder, source = _source(body, variant)
    tiles = Tiles(code, _shapes(variant))
    memory = builder.alloca(F32, size=index_constant(2 * TILE_ROWS * LANES))
    memory.align = ROW_BYTES
    tiles.begin()
    share, last = blocks_of_rows(body, TILE_ROWS)
    with code.loop(*share, 1) as block:
        first = first_row(body, block.index, last, TILE_ROWS)
        decoder.begin(first)
        for sums, _ in zip(_SUMS, _parts(variant.rows), strict=False):
            for tile in sums:
                tiles.zero(tile)
        source.decode(index_constant(0))
        end = index_constant(features - STEP_COLUMNS)
        with code.loop(index_constant(0), end, STEP_COLUMNS) as loop:
            fetch_ahead(body, decoder, features, TILE_ROWS, loop.index, STEP_COLUMNS)
            source.load(tiles, _LEFT, loop.index)
            source.decode(builder.add(loop.index, index_constant(STEP_COLUMNS)))
            _multiply_step(body, variant, tiles, loop.index)
        source.load(tiles, _LEFT, end)
        _multiply_step(body, variant, tiles, end)
        for sums, part in zip(_SUMS, _parts(variant.rows), strict=False):
            columns = _columns(code, tiles, sums, memory)
            for row in part:
                total = columns[row - part.start]
                write_outputs(body, variant, [row], first, TILE_ROWS, total)
    tiles.end()


def _parts(rows: int) -> list[range]:
    """Rows of x in one or two parts of at most 16."""
    if rows <= TILE_ROWS:
        return [range(rows)]
    half = -(-rows // 2)
    return [range(half), range(half, rows)]


def _shapes(variant: MatvecVariant) -> dict[int, TileShape]:
    shapes = dict.fromkeys(_LEFT, TileShape(TILE_ROWS, ROW_BYTES))
    for sums, right, part in zip(_SUMS, _RIGHT, _parts(variant.rows), strict=False):
        shapes |= dict.fromkeys((*sums, right), TileShape(TILE_ROWS, 4 * len(part)))
    return shapes


def _source(body: KernelBody, variant: MatvecVariant) -> tuple[BlockDecoder, TileSource]:
    slots = (CODES, SCALES, MINIMUMS)
    decoder = make_decoder(body, variant.weights, variant.in_features, TILE_ROWS, slots)
    return decoder, make_tile_source(body, variant.weights, decoder)


def _multiply_step(body: KernelBody, variant: MatvecVariant, tiles: Tiles, index: Any) -> None:
    builder = body.builder
    x = body.pointer(body.scratch_slot, I32)
    for tile, left in enumerate(_LEFT):
        for sums, right, part in zip(_SUMS, _RIGHT, _parts(variant.rows), strict=False):
            at = builder.gep(x, [_x_index(builder, variant, part, index, tile)])
            tiles.load(right, at, 4 * len(part))
            tiles.multiply_add(sums[tile], left, right)


def _x_index(builder: Any, variant: MatvecVariant, part: range, index: Any, tile: int) -> Any:
    """Where the scratch memory holds a part's tile of the step at column `index`, in pairs."""
    pair = builder.udiv(builder.add(index, index_constant(tile * TILE_COLUMNS)), index_constant(2))
    start = builder.mul(pair, index_constant(variant.rows))
    return builder.add(start, index_constant(part.start * TILE_ROWS))


def _columns(code: VectorCode, tiles: Tiles, sums: tuple[int, int], memory: Any) -> list[Any]:
    """Two tiles of sums added, column by column: 16 rows of W times one row of x each."""
    numbers = TILE_ROWS * LANES
    for place, tile in enumerate(sums):
        at = code.builder.gep(memory, [index_constant(place * numbers)])
        tiles.store(tile, at, ROW_BYTES)
    rows = []
    for row in range(TILE_ROWS):
        even, odd = (
            code.load(memory, index_constant(place * numbers + row * LANES), "fp32")
            for place in range(len(sums))
        )
        rows.append(code.add(even, odd))
    return code.transposed(rows)
