"""Keys and values as left-hand tiles, 32 tokens behind each other, as LLVM IR.

Scores are taken as K Q^T and attended values as V^T P^T, so that queries are lanes: softmax over
tokens then goes down the rows, and probabilities are written as right-hand tiles without a shuffle.
Keys keep their order for that, values are transposed, once for all heads and queries that share them.
"""

from typing import Any, Final

from llvmlite import ir

from llmprof.engine.kernels.native import KernelBody
from llmprof.engine.kernels.tile_blocks import BLOCK
from llmprof.engine.kernels.vector_ir import I16, I32, LANES, VectorCode, index_constant

(
    PACKED,
    KEYS,
    VALUES,
    SEQUENCES,
    KV_HEADS,
    TOKENS,
    SEQUENCE_STRIDE,
    HEAD_STRIDE,
    TOKEN_STRIDE,
    NUM_ARGUMENTS,
) = range(10)
"""Strides in numbers, the same for keys and values."""

_K_AND_V: Final = 2


def block_numbers(head_dim: int) -> int:
    """Of a block: keys [32, head_dim], then values [head_dim, 32]."""
    return _K_AND_V * BLOCK * head_dim


def pack_blocks(body: KernelBody, *, head_dim: int) -> None:
    """This thread's share of [sequences, kv_heads, blocks]; tokens beyond the last one are zero."""
    builder, code = body.builder, body.code
    tokens, heads = body.integer(TOKENS), body.integer(KV_HEADS)
    blocks = builder.udiv(builder.add(tokens, index_constant(BLOCK - 1)), index_constant(BLOCK))
    pairs = builder.mul(body.integer(SEQUENCES), heads)
    rows = builder.alloca(I16, size=index_constant(BLOCK * head_dim))
    rows.align = 64
    with code.loop(*body.share(builder.mul(pairs, blocks)), 1) as each:
        pair = builder.udiv(each.index, blocks)
        first = builder.mul(builder.urem(each.index, blocks), index_constant(BLOCK))
        start = builder.add(
            builder.mul(builder.udiv(pair, heads), body.integer(SEQUENCE_STRIDE)),
            builder.mul(builder.urem(pair, heads), body.integer(HEAD_STRIDE)),
        )
        at = builder.mul(each.index, index_constant(block_numbers(head_dim)))
        packed = builder.gep(body.pointer(PACKED, I16), [at])
        keys, values = (builder.gep(body.pointer(slot, I16), [start]) for slot in (KEYS, VALUES))
        _copy(body, keys, first, packed, head_dim)
        _copy(body, values, first, rows, head_dim)
        _transpose(code, rows, builder.gep(packed, [index_constant(BLOCK * head_dim)]), head_dim)


def _copy(body: KernelBody, source: Any, first: Any, out: Any, head_dim: int) -> None:
    """Rows of 32 tokens from `first` on to [32, head_dim]."""
    builder, code = body.builder, body.code
    tokens, stride = body.integer(TOKENS), body.integer(TOKEN_STRIDE)
    nothing = ir.Constant(code.vector_of(I16), [0] * LANES)
    last = builder.sub(tokens, index_constant(1))
    with code.loop(index_constant(0), index_constant(BLOCK), 1) as row:
        token = builder.add(first, row.index)
        there = builder.icmp_signed("<", token, tokens)
        own = builder.gep(source, [builder.mul(builder.select(there, token, last), stride)])
        target = builder.gep(out, [builder.mul(row.index, index_constant(head_dim))])
        for index in range(0, head_dim, LANES):
            numbers = code.load_raw(own, index_constant(index))
            kept = builder.select(there, numbers, nothing)
            code.store_raw(kept, target, index_constant(index))


def _transpose(code: VectorCode, rows: Any, out: Any, head_dim: int) -> None:
    """[32, head_dim] -> [head_dim, 32]: neighbouring tokens become one number of 32 bits first."""
    builder = code.builder
    out = builder.bitcast(out, I32.as_pointer())
    for index in range(0, head_dim, LANES):
        pairs = []
        for token in range(0, BLOCK, 2):
            even, odd = (
                code.zero_extend(code.load_raw(rows, index_constant(one * head_dim + index)))
                for one in (token, token + 1)
            )
            pairs.append(builder.or_(even, code.shift_left(odd, 16)))
        for nth, column in enumerate(code.transposed(pairs)):
            code.store_raw(column, out, index_constant((index + nth) * BLOCK // 2))
