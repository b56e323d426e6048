"""The loop nest of y = x W^T + b on a CPU with AMX: bf16 activations, up to 16 rows at one price.

A block of 16 rows of W is the left-hand matrix and x^T the right-hand one: weights are loaded as they
lie in memory, and only x is rearranged, once per call. Arithmetic is in float32 on bf16 factors; codes
of groups are multiplied by their scales and rounded to bf16 first, as for a product of many rows.
"""

from typing import Any

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

_SUMS, _RIGHT, _LEFT = (0, 1), (2, 3), (4, 5)
"""Numbers of tiles. A step has two of each: a product waits 52 cycles for the one before it in the
same sums, and 16 for the multiplier."""


def tiles_fit(variant: MatvecVariant) -> bool:
    """Whether this nest can do a product."""
    return (
        tiles_available()
        and variant.activations == "bf16"
        and variant.weights.number in ("bf16", "int8", "int4")
        and variant.in_features % STEP_COLUMNS == 0
        and not variant.few_outputs
    )


def scratch_bytes(variant: MatvecVariant) -> int:
    """Of x."""
    return 2 * variant.rows * variant.in_features


def pair_activations(body: KernelBody, variant: MatvecVariant) -> None:
    """Rearrange x [rows, in] to [in / 2, rows, 2]: what the instruction wants of its right side."""
    builder, code = body.builder, body.code
    x, out = body.pointer(X, I16), body.pointer(body.scratch_slot, I32)
    source = _source(body, variant)[1]
    for row in range(variant.rows):
        own = builder.gep(x, [index_constant(row * variant.in_features)])
        end = index_constant(variant.in_features)
        with code.loop(index_constant(0), end, STEP_COLUMNS) as loop:
            for tile in range(2):
                pairs = source.pairs(code, own, loop.index, tile)
                for lane in range(LANES):
                    at = builder.add(
                        _tile_index(builder, variant, loop.index, tile),
                        index_constant(lane * variant.rows + row),
                    )
                    number = builder.extract_element(pairs, ir.Constant(I32, lane))
                    builder.store(number, builder.gep(out, [at]))


def multiply(body: KernelBody, variant: MatvecVariant) -> None:
    """One thread's rows of W."""
    builder, code, features = body.builder, body.code, variant.in_features
    decoder, source = _source(body, variant)
    narrow, whole = TileShape(TILE_ROWS, 4 * variant.rows), TileShape(TILE_ROWS, ROW_BYTES)
    tiles = Tiles(
        code,
        {**dict.fromkeys(_SUMS + _RIGHT, narrow), **dict.fromkeys(_LEFT, whole)},
    )
    memory = builder.alloca(F32, size=index_constant(len(_SUMS) * TILE_ROWS * LANES))
    memory.align = ROW_BYTES
    tiles.begin()
    share, last = blocks_of_rows(body, TILE_ROWS)
    with code.loop(*share, 1) as block:
        first = first_row(body, block.index, last, TILE_ROWS)
        decoder.begin(first)
        for tile in _SUMS:
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
        columns = _columns(code, tiles, memory)
        for row in range(variant.rows):
            write_outputs(body, variant, [row], first, TILE_ROWS, columns[row])
    tiles.end()


def _source(body: KernelBody, variant: MatvecVariant) -> tuple[BlockDecoder, TileSource]:
    slots = (CODES, SCALES, MINIMUMS)
    decoder = make_decoder(body, variant.weights, variant.in_features, TILE_ROWS, slots)
    return decoder, make_tile_source(body, variant.weights, decoder)


def _multiply_step(body: KernelBody, variant: MatvecVariant, tiles: Tiles, index: Any) -> None:
    builder = body.builder
    x = body.pointer(body.scratch_slot, I32)
    for tile in range(2):
        at = builder.gep(x, [_tile_index(builder, variant, index, tile)])
        tiles.load(_RIGHT[tile], at, 4 * variant.rows)
        tiles.multiply_add(_SUMS[tile], _LEFT[tile], _RIGHT[tile])


def _tile_index(builder: Any, variant: MatvecVariant, index: Any, tile: int) -> Any:
    """Where the scratch memory holds a tile of x, in pairs."""
    pair = builder.udiv(builder.add(index, index_constant(tile * TILE_COLUMNS)), index_constant(2))
    return builder.mul(pair, index_constant(variant.rows))


def _columns(code: VectorCode, tiles: Tiles, memory: Any) -> list[Any]:
    """Both sums added, column by column: 16 rows of W times one row of x each."""
    numbers = TILE_ROWS * LANES
    for tile in _SUMS:
        at = code.builder.gep(memory, [index_constant(tile * numbers)])
        tiles.store(tile, at, ROW_BYTES)
    rows = []
    for row in range(TILE_ROWS):
        parts = (index_constant(tile * numbers + row * LANES) for tile in _SUMS)
        rows.append(code.add(*(code.load(memory, part, "fp32") for part in parts)))
    return code.transposed(rows)
