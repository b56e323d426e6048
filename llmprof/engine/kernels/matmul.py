"""y = x W^T + b for many rows of x in bf16 on a CPU with AMX: the product of a prefill.

The weight stays as the kernels for a few rows read it. 32 of its rows at a time are rearranged to
right-hand tiles, which stay in a near cache while all rows of x are multiplied by them;
`tests/benchmarks/prefill_ops.py` prints it beside oneDNN, which reads a layout of its own choice.
"""

import functools
from dataclasses import dataclass
from typing import Any, Final

import torch

from llmprof.engine.kernels.launch import launch, observable
from llmprof.engine.kernels.native import KernelBody, NativeKernel, compile_kernel
from llmprof.engine.kernels.tile_blocks import (
    BLOCK,
    SHAPES,
    TILE_NUMBERS,
    block_start,
    blocks_of,
    multiply_step,
    narrow_pair,
    pairs_of,
    smaller,
    store_sums,
    transpose_pairs,
    zero_sums,
)
from llmprof.engine.kernels.tiles import ROW_BYTES, TILE_COLUMNS, TILE_ROWS, Tiles, tiles_available
from llmprof.engine.kernels.vector_ir import (
    F32,
    I16,
    I32,
    LANES,
    VectorCode,
    index_constant,
)
from llmprof.engine.kernels.work_queue import MOST_QUEUES, QUEUE_BYTES, clear_queues, each_piece

_X, _W, _Y, _BIAS, _PACKED, _ROWS, _OUT_FEATURES, _GROUP, _STRETCH, _NUM_ARGUMENTS = range(10)
_FEWEST_ROWS: Final = 256
_MOST_ROWS: Final = 512
"""Of x, for which a block of W is rearranged once: that takes as long as products with some 40 rows."""
_MOST_IN_FEATURES: Final = 2016
"""Rows of x of 4 KiB and more meet in the same sets of the caches: oneDNN, which copies them, is faster."""
_LARGEST_GROUP: Final = 4
"""Blocks of W's rows that are multiplied by a block of x in turn: y is written in longer stretches."""
_NEAR_CACHE_NUMBERS: Final = 256 << 10
"""Of weights that a thread keeps rearranged: 512 KiB."""
_PIECES_PER_THREAD: Final = 4
"""At least, of each stretch of rows, before blocks are put in groups."""
_LINES_PER_STEP: Final = 2
"""Of the weights to come, fetched for every 32 columns of 32 x 32 sums."""


def matmul_fits(shape: tuple[int, int], rows: int) -> bool:
    """Whether `matmul` can multiply so many rows by a bf16 weight [out_features, in_features]."""
    out_features, in_features = shape
    whole = in_features % TILE_COLUMNS == 0 and out_features >= BLOCK and rows >= BLOCK
    return whole and in_features <= _MOST_IN_FEATURES and tiles_available()


@observable("matmul", fake=lambda x, weight, _bias: x.new_empty(x.shape[0], weight.shape[0]))
def matmul(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Multiply rows by a weight, in float32, rounded once.

    Args:
        x: [rows, in_features], bf16 on the CPU, such that `matmul_fits`.
        weight: [out_features, in_features], contiguous, bf16.
        bias: [out_features], bf16.

    Returns:
        [rows, out_features], new.
    """
    rows, in_features = x.shape
    out_features = weight.shape[0]
    y = x.new_empty((rows, out_features))
    x = x.contiguous()
    threads = torch.get_num_threads()
    group = _group(weight.shape[0], in_features, threads)
    packed = x.new_empty((threads, group * BLOCK * in_features))
    launch(
        _kernel(in_features, bias is not None),
        weight.nbytes + x.nbytes + y.nbytes,
        x.data_ptr(),
        weight.data_ptr(),
        y.data_ptr(),
        0 if bias is None else bias.data_ptr(),
        packed.data_ptr(),
        rows,
        out_features,
        group,
        _stretch(rows, threads),
    )
    return y


def _group(out_features: int, in_features: int, threads: int) -> int:
    """Blocks of W's rows in a piece of work."""
    for_threads = out_features // BLOCK // (_PIECES_PER_THREAD * threads)
    for_cache = _NEAR_CACHE_NUMBERS // (BLOCK * in_features)
    return max(1, min(for_threads, for_cache, _LARGEST_GROUP))


def _stretch(rows: int, threads: int) -> int:
    """Blocks of rows of x for which a block of W is rearranged once."""
    wanted = min(max(-(-rows // threads), _FEWEST_ROWS), _MOST_ROWS)
    return -(-max(wanted, -(-rows // MOST_QUEUES)) // BLOCK)


@functools.cache
def _kernel(in_features: int, has_bias: bool) -> NativeKernel:
    return compile_kernel(
        f"matmul_{in_features}",
        _NUM_ARGUMENTS,
        functools.partial(_multiply, in_features=in_features, has_bias=has_bias),
        prepare=clear_queues,
        scratch_bytes=QUEUE_BYTES,
    )


@dataclass(frozen=True, slots=True)
class _Piece:
    """Blocks of 32 columns of y [columns) times blocks of 32 rows [rows), each as first and end."""

    columns: tuple[Any, Any]
    rows: tuple[Any, Any]
    packed: Any
    """The right-hand tiles of its part of W, block by block."""
    coming: Any
    """What part of W is probably next on this thread."""


def _multiply(body: KernelBody, *, in_features: int, has_bias: bool) -> None:
    """Pieces are a group of blocks of W's rows times up to 512 rows of x."""
    builder, code = body.builder, body.code
    rows, out_features = body.integer(_ROWS), body.integer(_OUT_FEATURES)
    group, block_numbers = body.integer(_GROUP), index_constant(BLOCK * in_features)
    own = builder.mul(body.thread, builder.mul(group, block_numbers))
    packed = builder.gep(body.pointer(_PACKED, I16), [own])
    sums = builder.alloca(F32, size=index_constant(BLOCK * BLOCK))
    sums.align = ROW_BYTES
    tiles = Tiles(code, SHAPES)
    tiles.begin()
    blocks = blocks_of(builder, out_features)
    groups = builder.udiv(builder.add(blocks, builder.sub(group, index_constant(1))), group)
    stretch = body.integer(_STRETCH)
    row_blocks = blocks_of(builder, rows)
    stretches = builder.udiv(
        builder.add(row_blocks, builder.sub(stretch, index_constant(1))), stretch
    )
    with code.loop(index_constant(0), stretches, 1) as turn:
        queue = builder.urem(builder.add(turn.index, body.thread), stretches)
        begin = builder.mul(queue, stretch)
        own_rows = (begin, smaller(builder, builder.add(begin, stretch), row_blocks))
        with each_piece(body, groups, queue) as piece:
            first = builder.mul(piece, group)
            following = builder.add(first, group)
            part = _Piece(
                (first, smaller(builder, following, blocks)),
                own_rows,
                packed,
                builder.gep(body.pointer(_W, I16), [builder.mul(following, block_numbers)]),
            )
            _pack_piece(body, part, in_features)
            _multiply_piece(body, tiles, part, sums, in_features=in_features, has_bias=has_bias)
    tiles.end()


def _pack_piece(body: KernelBody, piece: _Piece, in_features: int) -> None:
    builder = body.builder
    with body.code.loop(*piece.columns, 1) as each:
        column = block_start(builder, each.index, body.integer(_OUT_FEATURES))
        at = builder.mul(column, index_constant(in_features))
        weight = builder.gep(body.pointer(_W, I16), [at])
        _pack(body.code, weight, _tiles_of(builder, piece, each.index, in_features), in_features)


def _multiply_piece(
    body: KernelBody, tiles: Tiles, piece: _Piece, sums: Any, *, in_features: int, has_bias: bool
) -> None:
    builder, code = body.builder, body.code
    size = index_constant(in_features)
    with code.loop(*piece.rows, 1) as block:
        row = block_start(builder, block.index, body.integer(_ROWS))
        left = builder.gep(body.pointer(_X, I16), [builder.mul(row, size)])
        with code.loop(*piece.columns, 1) as each:
            column = block_start(builder, each.index, body.integer(_OUT_FEATURES))
            right = _tiles_of(builder, piece, each.index, in_features)
            coming = _coming(builder, piece, block.index, each.index, in_features)
            zero_sums(tiles)
            with code.loop(index_constant(0), size, TILE_COLUMNS) as step:
                for line in range(_LINES_PER_STEP):
                    ahead = builder.mul(step.index, index_constant(_LINES_PER_STEP))
                    ahead = builder.add(ahead, index_constant(line * TILE_COLUMNS))
                    code.prefetch(coming, ahead, level=2)
                multiply_step(
                    tiles,
                    builder.gep(left, [step.index]),
                    2 * in_features,
                    builder.gep(right, [builder.mul(step.index, index_constant(BLOCK))]),
                    2 * TILE_NUMBERS,
                    builder,
                )
            store_sums(tiles, sums, builder)
            _write(body, sums, row, column, has_bias=has_bias)


def _tiles_of(builder: Any, piece: _Piece, block: Any, in_features: int) -> Any:
    """Of a block of W's rows."""
    nth = builder.sub(block, piece.columns[0])
    return builder.gep(piece.packed, [builder.mul(nth, index_constant(BLOCK * in_features))])


def _coming(builder: Any, piece: _Piece, row_block: Any, block: Any, in_features: int) -> Any:
    """What to fetch during this block of products: with 512 rows, all of the next piece in the end.

    Without it, a weight that is not in the second cache costs a fifth to a third of the time.
    """
    (first, end), (begin, _) = piece.columns, piece.rows
    done = builder.mul(builder.sub(row_block, begin), builder.sub(end, first))
    done = builder.add(done, builder.sub(block, first))
    numbers = builder.mul(done, index_constant(_LINES_PER_STEP * in_features))
    return builder.gep(piece.coming, [numbers])


def _pack(code: VectorCode, weight: Any, packed: Any, in_features: int) -> None:
    """32 rows of W as right-hand tiles, two for each 32 columns."""
    builder = code.builder
    rows = [builder.gep(weight, [index_constant(row * in_features)]) for row in range(BLOCK)]
    with code.loop(index_constant(0), index_constant(in_features), TILE_COLUMNS) as step:
        out = builder.gep(packed, [builder.mul(step.index, index_constant(BLOCK))])
        out = builder.bitcast(out, I32.as_pointer())
        for half in (0, TILE_ROWS):
            pairs = [pairs_of(code, row, step.index) for row in rows[half:][:TILE_ROWS]]
            at = builder.gep(out, [index_constant(half * LANES)])
            transpose_pairs(code, pairs, at)


def _write(body: KernelBody, sums: Any, row: Any, column: Any, *, has_bias: bool) -> None:
    builder, code = body.builder, body.code
    out_features = body.integer(_OUT_FEATURES)
    wide = VectorCode(builder, BLOCK)
    added = []
    if has_bias:
        bias = body.pointer(_BIAS, I16)
        added = [
            code.load(bias, builder.add(column, index_constant(half)), "bf16")
            for half in (0, LANES)
        ]
    at = builder.add(builder.mul(row, out_features), column)
    y = builder.gep(body.pointer(_Y, I16), [at])
    for nth in range(BLOCK):
        halves = [
            code.load(sums, index_constant(nth * BLOCK + half), "fp32") for half in (0, LANES)
        ]
        if has_bias:
            halves = [code.add(total, more) for total, more in zip(halves, added, strict=True)]
        place = builder.mul(out_features, index_constant(nth))
        wide.store_raw(narrow_pair(code, *halves), y, place)
