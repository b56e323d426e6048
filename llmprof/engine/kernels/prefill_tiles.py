"""Causal attention of 32 queries at a time with AMX, as LLVM IR: scores never leave the core.

Queries of all heads that share a KV head go through its tokens together, in chunks whose scores fit
a near cache. Lane i of every vector is query i: see `prefill_pack`.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

from llvmlite import ir

from llmprof.engine.kernels.native import KernelBody
from llmprof.engine.kernels.prefill_memory import CHUNK_TOKENS, PrefillMemory, PrefillVariant
from llmprof.engine.kernels.prefill_pack import block_numbers
from llmprof.engine.kernels.tile_blocks import (
    BLOCK,
    SHAPES,
    TILE_NUMBERS,
    block_start,
    blocks_of,
    load_sums,
    multiply_step,
    narrow_pair,
    pairs_of,
    smaller,
    store_sums,
    transpose_pairs,
    zero_sums,
)
from llmprof.engine.kernels.tile_sources import interleaved
from llmprof.engine.kernels.tiles import ROW_BYTES, TILE_COLUMNS, TILE_ROWS, Tiles
from llmprof.engine.kernels.vector_ir import I16, I32, LANES, index_constant
from llmprof.engine.kernels.vector_math import LOG2_E, exp2, join_all, larger, short_exp2
from llmprof.engine.kernels.work_queue import each_piece

QUERY, PACKED, OUT, SEQUENCES, NEW_TOKENS, CACHED_TOKENS, ROW_STRIDE, NUM_ARGUMENTS = range(8)
"""The stride in numbers, of the rows of queries."""

_LEAST_SCORE: Final = -1e30
"""Of what a query must not see: finite, so that no difference of two is a NaN."""
_HALVES: Final = (0, LANES)
_UNROLLED: Final = 4


def attend_blocks(body: KernelBody, *, variant: PrefillVariant) -> None:
    """Pieces are 32 queries of the heads of one KV head; those that see most tokens go first."""
    builder, code = body.builder, body.code
    new, cached = body.integer(NEW_TOKENS), body.integer(CACHED_TOKENS)
    pairs = builder.mul(body.integer(SEQUENCES), index_constant(variant.kv_heads))
    blocks = blocks_of(builder, new)
    memory = PrefillMemory.reserve(builder, variant)
    tiles = Tiles(code, SHAPES)
    tiles.begin()
    with each_piece(body, builder.mul(pairs, blocks)) as piece:
        pair = builder.urem(piece, pairs)
        nth = builder.sub(builder.sub(blocks, builder.udiv(piece, pairs)), index_constant(1))
        first = block_start(builder, nth, new)
        position = builder.add(cached, first)
        seen = blocks_of(builder, builder.add(position, index_constant(BLOCK)))
        tokens = builder.mul(blocks_of(builder, builder.add(cached, new)), pair)
        at = builder.mul(tokens, index_constant(block_numbers(variant.head_dim)))
        packed = builder.gep(body.pointer(PACKED, I16), [at])
        sequence = builder.udiv(pair, index_constant(variant.kv_heads))
        row = builder.add(builder.mul(sequence, new), first)
        kv_head = builder.urem(pair, index_constant(variant.kv_heads))
        head = builder.mul(kv_head, index_constant(variant.group))
        with _each_head(code, variant) as each:
            own = memory.of_head(builder, each.index, variant)
            _begin(body, own, row, builder.add(head, each.index), variant)
        per_chunk = CHUNK_TOKENS // BLOCK
        with code.loop(index_constant(0), seen, per_chunk) as chunk:
            stop = smaller(builder, builder.add(chunk.index, index_constant(per_chunk)), seen)
            with _each_head(code, variant) as each:
                own = memory.of_head(builder, each.index, variant)
                _attend_chunk(body, tiles, own, packed, (chunk.index, stop), position, variant)
        with _each_head(code, variant) as each:
            own = memory.of_head(builder, each.index, variant)
            _finish(body, own, row, builder.add(head, each.index), variant)
    tiles.end()


def _each_head(code: Any, variant: PrefillVariant) -> Any:
    return code.loop(index_constant(0), index_constant(variant.group), 1)


def _begin(
    body: KernelBody, memory: PrefillMemory, row: Any, head: Any, variant: PrefillVariant
) -> None:
    """Queries as tiles, and nothing seen yet."""
    builder, code = body.builder, body.code
    stride = body.integer(ROW_STRIDE)
    at = builder.add(builder.mul(row, stride), builder.mul(head, index_constant(variant.head_dim)))
    query = builder.gep(body.pointer(QUERY, I16), [at])
    for half in (0, 1):
        rows = [
            builder.gep(query, [builder.mul(stride, index_constant(half * TILE_ROWS + one))])
            for one in range(TILE_ROWS)
        ]
        with code.loop(index_constant(0), index_constant(variant.head_dim), TILE_COLUMNS) as step:
            place = builder.mul(step.index, index_constant(BLOCK))
            tile = builder.gep(
                memory.queries, [builder.add(place, index_constant(half * TILE_NUMBERS))]
            )
            numbers = [pairs_of(code, one, step.index) for one in rows]
            transpose_pairs(code, numbers, builder.bitcast(tile, I32.as_pointer()))
    for half in _HALVES:
        code.store(code.splat(_LEAST_SCORE), memory.peaks, index_constant(half), "fp32")
        code.store(code.splat(0.0), memory.masses, index_constant(half), "fp32")
    count = index_constant(BLOCK * variant.head_dim)
    with code.loop(index_constant(0), count, LANES) as each:
        code.store(code.splat(0.0), memory.sums, each.index, "fp32")


def _attend_chunk(
    body: KernelBody,
    tiles: Tiles,
    memory: PrefillMemory,
    packed: Any,
    blocks: tuple[Any, Any],
    position: Any,
    variant: PrefillVariant,
) -> None:
    """One head's queries, the first at `position`, and blocks [start, stop) of tokens."""
    builder = body.builder
    start, stop = blocks
    count = builder.sub(stop, start)
    rows = builder.mul(count, index_constant(BLOCK))
    at = builder.mul(start, index_constant(block_numbers(variant.head_dim)))
    packed = builder.gep(packed, [at])
    _score(body, tiles, memory, packed, count, variant)
    _hide(body, memory, builder.mul(start, index_constant(BLOCK)), rows, position)
    decays = _move_peaks(body, memory, rows, variant)
    _weigh(body, memory, rows, decays, variant)
    _add_values(body, tiles, memory, packed, count, variant)


def _score(
    body: KernelBody,
    tiles: Tiles,
    memory: PrefillMemory,
    packed: Any,
    count: Any,
    variant: PrefillVariant,
) -> None:
    """K Q^T of a chunk."""
    builder, code, size = body.builder, body.code, variant.head_dim
    with code.loop(index_constant(0), count, 1) as block:
        keys = builder.gep(packed, [builder.mul(block.index, index_constant(block_numbers(size)))])
        zero_sums(tiles)
        for column in range(0, size, TILE_COLUMNS):
            left = builder.gep(keys, [index_constant(column)])
            right = builder.gep(memory.queries, [index_constant(column * BLOCK)])
            multiply_step(tiles, left, 2 * size, right, 2 * TILE_NUMBERS, builder)
        at = builder.mul(block.index, index_constant(BLOCK * BLOCK))
        store_sums(tiles, builder.gep(memory.scores, [at]), builder)


def _hide(body: KernelBody, memory: PrefillMemory, token: Any, rows: Any, position: Any) -> None:
    """From the first query's own token on, later queries see more than earlier ones."""
    builder, code = body.builder, body.code
    visible = builder.add(builder.sub(position, token), index_constant(1))
    visible = builder.select(
        builder.icmp_signed("<", visible, index_constant(0)), index_constant(0), visible
    )
    lanes = [ir.Constant(code.vector_of(I32), [half + n for n in range(LANES)]) for half in _HALVES]
    with code.loop(visible, rows, 1) as row:
        after = builder.sub(builder.add(token, row.index), position)
        needed = code.broadcast(builder.trunc(after, I32))
        for half, own in zip(_HALVES, lanes, strict=True):
            at = _at(builder, row.index, half)
            score = code.load(memory.scores, at, "fp32")
            seen = builder.icmp_signed(">=", own, needed)
            kept = builder.select(seen, score, code.splat(_LEAST_SCORE))
            code.store(kept, memory.scores, at, "fp32")


def _move_peaks(
    body: KernelBody, memory: PrefillMemory, rows: Any, variant: PrefillVariant
) -> list[Any]:
    """Raise the peaks to a chunk's scores: what sums and masses decay by."""
    builder, code = body.builder, body.code
    before = [code.load(memory.peaks, index_constant(half), "fp32") for half in _HALVES]
    least = [code.splat(_LEAST_SCORE)] * (_UNROLLED * len(_HALVES))
    with code.loop(index_constant(0), rows, _UNROLLED, least) as loop:
        for nth, value in enumerate(list(loop.carried)):
            row = builder.add(loop.index, index_constant(nth // len(_HALVES)))
            at = _at(builder, row, _HALVES[nth % len(_HALVES)])
            loop.carried[nth] = larger(code, code.load(memory.scores, at, "fp32"), value)
    decays = []
    for nth, half in enumerate(_HALVES):
        highest = join_all(code, loop.results[nth :: len(_HALVES)], larger)
        highest = code.mul(highest, code.splat(_factor(variant)))
        peak = larger(code, highest, before[nth])
        code.store(peak, memory.peaks, index_constant(half), "fp32")
        decays.append(exp2(code, builder.fsub(before[nth], peak)))
    return decays


def _weigh(
    body: KernelBody,
    memory: PrefillMemory,
    rows: Any,
    decays: Sequence[Any],
    variant: PrefillVariant,
) -> None:
    """Probabilities of a chunk, and what is left of those before it."""
    builder, code = body.builder, body.code
    below = [
        builder.fsub(code.splat(0.0), code.load(memory.peaks, index_constant(half), "fp32"))
        for half in _HALVES
    ]
    masses = [
        code.mul(code.load(memory.masses, index_constant(half), "fp32"), decay)
        for half, decay in zip(_HALVES, decays, strict=True)
    ]
    weights = builder.bitcast(memory.weights, I32.as_pointer())
    with code.loop(index_constant(0), rows, 2, masses) as loop:
        block = builder.udiv(loop.index, index_constant(BLOCK))
        pair = builder.udiv(builder.urem(loop.index, index_constant(BLOCK)), index_constant(2))
        for nth, half in enumerate(_HALVES):
            powers = []
            for one in (0, 1):
                at = _at(builder, builder.add(loop.index, index_constant(one)), half)
                score = code.load(memory.scores, at, "fp32")
                exponent = code.fma(score, code.splat(_factor(variant)), below[nth])
                powers.append(short_exp2(code, exponent))
            loop.carried[nth] = code.add(loop.carried[nth], code.add(*powers))
            tile = builder.add(
                builder.mul(block, index_constant(TILE_NUMBERS)),
                index_constant(nth * TILE_NUMBERS // 2),
            )
            place = builder.add(tile, builder.mul(pair, index_constant(LANES)))
            both = builder.bitcast(interleaved(code, *powers), code.vector_of(I32))
            code.store_raw(both, weights, place)
    for half, mass in zip(_HALVES, loop.results, strict=True):
        code.store(mass, memory.masses, index_constant(half), "fp32")
    with code.loop(index_constant(0), index_constant(variant.head_dim), 1) as row:
        for half, decay in zip(_HALVES, decays, strict=True):
            at = _at(builder, row.index, half)
            kept = code.mul(code.load(memory.sums, at, "fp32"), decay)
            code.store(kept, memory.sums, at, "fp32")


def _add_values(
    body: KernelBody,
    tiles: Tiles,
    memory: PrefillMemory,
    packed: Any,
    count: Any,
    variant: PrefillVariant,
) -> None:
    """V^T P^T of a chunk, onto the sums."""
    builder, code, size = body.builder, body.code, variant.head_dim
    for dim in range(0, size, BLOCK):
        sums = builder.gep(memory.sums, [index_constant(dim * BLOCK)])
        load_sums(tiles, sums, builder)
        with code.loop(index_constant(0), count, 1) as block:
            at = builder.mul(block.index, index_constant(block_numbers(size)))
            values = builder.gep(packed, [builder.add(at, index_constant((size + dim) * BLOCK))])
            at = builder.mul(block.index, index_constant(2 * TILE_NUMBERS))
            right = builder.gep(memory.weights, [at])
            multiply_step(tiles, values, ROW_BYTES, right, 2 * TILE_NUMBERS, builder)
        store_sums(tiles, sums, builder)


def _finish(
    body: KernelBody, memory: PrefillMemory, row: Any, head: Any, variant: PrefillVariant
) -> None:
    """The attended values, query by query."""
    builder, code, size = body.builder, body.code, variant.head_dim
    heads = variant.kv_heads * variant.group
    at = builder.add(builder.mul(row, index_constant(heads)), head)
    out = builder.gep(body.pointer(OUT, I16), [builder.mul(at, index_constant(size))])
    for half in _HALVES:
        mass = code.load(memory.masses, index_constant(half), "fp32")
        share = builder.fdiv(code.splat(1.0), mass)
        with code.loop(index_constant(0), index_constant(size), 2 * LANES) as dims:
            columns = []
            for part in _HALVES:
                rows = [
                    code.mul(
                        code.load(
                            memory.sums,
                            _at(builder, builder.add(dims.index, index_constant(part + one)), half),
                            "fp32",
                        ),
                        share,
                    )
                    for one in range(LANES)
                ]
                columns.append(code.transposed(rows))
            for query, pair in enumerate(zip(*columns, strict=True)):
                place = builder.add(dims.index, index_constant((half + query) * heads * size))
                numbers = narrow_pair(code, *pair)
                target = builder.bitcast(builder.gep(out, [place]), numbers.type.as_pointer())
                builder.store(numbers, target).align = 2


def _factor(variant: PrefillVariant) -> float:
    """Scores become exponents of two."""
    return LOG2_E / math.sqrt(variant.head_dim)


def _at(builder: Any, row: Any, half: int) -> Any:
    """Of half a row of [rows, 32]."""
    return builder.add(builder.mul(row, index_constant(BLOCK)), index_constant(half))
