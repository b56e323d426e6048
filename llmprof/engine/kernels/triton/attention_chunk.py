"""Causal attention of many new tokens to a KV cache that is read through block tables, on a GPU.

For pieces of prompts that follow cached tokens, for windows and for capped scores: what torch's
fused kernels would want gathered, masked, or do only by writing the scores. Each tile of 64 rows
(tokens times the query heads of a group) reads every key and value that one of them sees; reads by
different tiles meet in the L2 cache. 4 * heads * head_dim FLOPs for each token that a query sees;
what the mask hides within a tile is computed too.
"""

from typing import Final

import torch
import triton
import triton.language as tl

from llmprof.engine.kernels.launch import observable
from llmprof.engine.kernels.triton.attention_decode import as_codes
from llmprof.engine.kernels.triton.attention_tiles import attend_tile, vectors_of
from llmprof.engine.kernels.triton.gpu import converts_fp8, on_device_of

_ROWS: Final = 64
_LEAST_OF_A_DOT: Final = 16
_NUMBERS_PER_TILE: Final = 8192


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    query,
    store,
    scales,
    tables,
    context_lens,
    out,
    query_stride,
    table_stride,
    value_plane,
    new_tokens,
    heads,
    kv_heads,
    block_tokens,
    head_dim,
    window,
    scale,
    cap,
    is_int8: tl.constexpr,
    is_fp8: tl.constexpr,
    native_fp8: tl.constexpr,
    group: tl.constexpr,
    rows: tl.constexpr,
    dims: tl.constexpr,
    tile: tl.constexpr,
):
    """Some rows of one KV head of one sequence; row r is query head r % group of token r // group."""
    sequence, head = tl.program_id(1) // kv_heads, tl.program_id(1) % kv_heads
    cached = tl.load(context_lens + sequence) - new_tokens
    row, dim = tl.program_id(0) * rows + tl.arange(0, rows), tl.arange(0, dims)
    new = row // group
    used = (new < new_tokens)[:, None] & (dim < head_dim)[None, :]
    line = sequence.to(tl.int64) * new_tokens + new
    column = ((head * group + row % group) * head_dim)[:, None] + dim[None, :]
    queries = tl.load(query + line[:, None] * query_stride + column, used, other=0.0)
    peak = tl.full((rows,), -float("inf"), dtype=tl.float32)
    mass = tl.zeros((rows,), dtype=tl.float32)
    sums = tl.zeros((rows, dims), dtype=tl.float32)
    table = tables + sequence.to(tl.int64) * table_stride
    position = cached + new
    first_new = tl.program_id(0) * rows // group
    last_new = tl.minimum((tl.program_id(0) * rows + rows - 1) // group, new_tokens - 1)
    begin = tl.maximum(cached + first_new - window + 1, 0) // tile * tile if window > 0 else 0
    end = cached + last_new + 1
    for start in range(begin, end, tile):
        token = start + tl.arange(0, tile)
        valid = token < end
        visible = (token[None, :] <= position[:, None]) & valid[None, :]
        if window > 0:
            visible &= token[None, :] > position[:, None] - window
        vector = vectors_of(token, valid, table, head, kv_heads, block_tokens)
        peak, mass, sums = attend_tile(
            queries,
            visible,
            valid,
            vector,
            store,
            scales,
            value_plane,
            peak,
            mass,
            sums,
            head_dim,
            scale,
            cap,
            dims,
            is_int8,
            is_fp8,
            native_fp8,
        )
    result = (sums / mass[:, None]).to(out.dtype.element_ty)
    tl.store(out + line[:, None] * (heads * head_dim) + column, result, used)


@observable(
    "triton_chunk_attention",
    fake=lambda query, *_: query.new_empty(query.shape[0], query.shape[1] * query.shape[2]),
)
def triton_chunk_attention(
    query: torch.Tensor,
    store: torch.Tensor,
    scales: torch.Tensor | None,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    window: int | None = None,
    cap: float | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """Attend from the last `rows / sequences` tokens of each sequence to all up to themselves.

    Args:
        query: [rows, heads, head_dim], rows at any stride and dense within, on a GPU; fp32, bf16 or
            fp16: the new tokens of one sequence after those of the other, as many of each.
        store: keys and values, [2, blocks, kv_heads, block_tokens, head_dim], contiguous, with
            those of the new tokens; of the same dtype, or int8 or float8_e4m3fn.
        scales: for int8, float32 [2, blocks, kv_heads, block_tokens], contiguous.
        block_tables: int32 [sequences, width], the blocks of each sequence in order.
        context_lens: int32 [sequences], contiguous: tokens of each, the new ones included.
        window: each token sees so many, its own included; None: all before it.
        cap: scores s become cap * tanh(s / cap); None: they stay.
        scale: of the products of queries and keys; None: 1 / sqrt(head_dim).

    Returns:
        [rows, heads * head_dim], new.
    """
    num_rows, heads, head_dim = query.shape
    sequences = context_lens.shape[0]
    _, blocks, kv_heads, block_tokens, _ = store.shape
    new_tokens, group = num_rows // sequences, heads // kv_heads
    out = query.new_empty(num_rows, heads * head_dim)
    dims = max(_LEAST_OF_A_DOT, triton.next_power_of_2(head_dim))
    with on_device_of(query):
        _attend[(triton.cdiv(new_tokens * group, _ROWS), sequences * kv_heads)](
            query,
            as_codes(store, query.dtype),
            query if scales is None else scales,
            block_tables,
            context_lens,
            out,
            query.stride(0),
            block_tables.stride(0),
            blocks * kv_heads * block_tokens,
            new_tokens,
            heads,
            kv_heads,
            block_tokens,
            head_dim,
            window or 0,
            head_dim**-0.5 if scale is None else scale,
            cap or 0.0,
            is_int8=store.dtype is torch.int8,
            is_fp8=store.dtype is torch.float8_e4m3fn,
            native_fp8=converts_fp8(query.device),
            group=group,
            rows=_ROWS,
            dims=dims,
            tile=max(_LEAST_OF_A_DOT, min(64, _NUMBERS_PER_TILE // dims)),
            num_warps=4,
            num_stages=2,
        )
    return out
