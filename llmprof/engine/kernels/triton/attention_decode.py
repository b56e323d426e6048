"""Attention of one new token per sequence to its KV cache, read through block tables, on a GPU.

"Flash-Decoding" (Dao et al. 2023): the tokens of a sequence are split among programs, whose results
a second kernel joins. Reads every key and value that a query sees once, for its whole group of
query heads: 2 * tokens * kv_heads * head_dim numbers, and scales of int8; 4 * tokens * heads *
head_dim FLOPs.
"""

from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl

from llmprof.engine.kernels.launch import observable
from llmprof.engine.kernels.triton.attention_tiles import attend_tile, vectors_of
from llmprof.engine.kernels.triton.gpu import converts_fp8, multiprocessors, on_device_of

_LEAST_OF_A_DOT: Final = 16
"""Rows, and numbers that are summed: fewer are filled up with zeros."""
_PROGRAMS_PER_MULTIPROCESSOR: Final = 4
_TILES_PER_SPLIT: Final = 4
"""At least, so that joining splits stays small beside reading them."""
_MOST_SPLITS: Final = 64
_NUMBERS_PER_TILE: Final = 8192


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    query,
    store,
    scales,
    tables,
    context_lens,
    out,
    peaks,
    masses,
    query_stride,
    table_stride,
    value_plane,
    heads,
    kv_heads,
    block_tokens,
    head_dim,
    window,
    scale,
    cap,
    splits,
    is_int8: tl.constexpr,
    is_fp8: tl.constexpr,
    native_fp8: tl.constexpr,
    whole: tl.constexpr,
    group: tl.constexpr,
    rows: tl.constexpr,
    dims: tl.constexpr,
    tile: tl.constexpr,
):
    """One split of one KV head of one sequence."""
    sequence, head = tl.program_id(0) // kv_heads, tl.program_id(0) % kv_heads
    context = tl.load(context_lens + sequence)
    first = tl.maximum(context - window, 0) if window > 0 else 0
    share = tl.cdiv(tl.cdiv(context - first, splits), tile) * tile
    begin = first + tl.program_id(1) * share
    end = tl.minimum(begin + share, context)
    row, dim = tl.arange(0, rows), tl.arange(0, dims)
    used = (row < group)[:, None] & (dim < head_dim)[None, :]
    heads_of = (head * group + row)[:, None]
    given = query + sequence.to(tl.int64) * query_stride + heads_of * head_dim + dim[None, :]
    queries = tl.load(given, used, other=0.0)
    peak = tl.full((rows,), -float("inf"), dtype=tl.float32)
    mass = tl.zeros((rows,), dtype=tl.float32)
    sums = tl.zeros((rows, dims), dtype=tl.float32)
    table = tables + sequence.to(tl.int64) * table_stride
    for start in range(begin, end, tile):
        token = start + tl.arange(0, tile)
        valid = token < end
        vector = vectors_of(token, valid, table, head, kv_heads, block_tokens)
        peak, mass, sums = attend_tile(
            queries,
            valid[None, :],
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
    place = sequence.to(tl.int64) * heads + head * group + row
    if whole:
        result = (sums / mass[:, None]).to(out.dtype.element_ty)
        tl.store(out + place[:, None] * head_dim + dim[None, :], result, used)
    else:
        place = place * splits + tl.program_id(1)
        tl.store(out + place[:, None] * head_dim + dim[None, :], sums, used)
        tl.store(peaks + place, peak, row < group)
        tl.store(masses + place, mass, row < group)


@triton.jit  # type: ignore[untyped-decorator]
def _join(  # type: ignore[no-untyped-def]
    sums, peaks, masses, out, head_dim, splits, most: tl.constexpr, dims: tl.constexpr
):
    """The splits of one query head; one without a token has the peak -inf and counts for nothing."""
    head = tl.program_id(0).to(tl.int64)
    split, dim = tl.arange(0, most), tl.arange(0, dims)
    exists = split < splits
    peak = tl.load(peaks + head * splits + split, exists, other=-float("inf"))
    mass = tl.load(masses + head * splits + split, exists, other=0.0)
    share = tl.exp(peak - tl.max(peak, axis=0))
    used = exists[:, None] & (dim < head_dim)[None, :]
    given = sums + (head * splits + split)[:, None] * head_dim + dim[None, :]
    total = tl.sum(tl.load(given, used, other=0.0) * share[:, None], axis=0)
    result = total / tl.sum(mass * share, axis=0)
    tl.store(out + head * head_dim + dim, result.to(out.dtype.element_ty), dim < head_dim)


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """How the tokens are cut."""

    tile: int
    """Tokens at once."""
    splits: int


def plan_decode(
    sequences: int, kv_heads: int, head_dim: int, seen_tokens: int, num_multiprocessors: int
) -> DecodePlan:
    """Enough programs to fill the GPU. `seen_tokens`: of the longest sequence, within its window."""
    dims = max(_LEAST_OF_A_DOT, triton.next_power_of_2(head_dim))
    tile = max(_LEAST_OF_A_DOT, min(64, _NUMBERS_PER_TILE // dims))
    wanted = -(-_PROGRAMS_PER_MULTIPROCESSOR * num_multiprocessors // (sequences * kv_heads))
    useful = -(-seen_tokens // (_TILES_PER_SPLIT * tile))
    return DecodePlan(tile, max(1, min(wanted, useful, _MOST_SPLITS)))


@observable(
    "triton_decode_attention",
    fake=lambda query, *_: query.new_empty(query.shape[0], query.shape[1] * query.shape[2]),
)
def triton_decode_attention(
    query: torch.Tensor,
    store: torch.Tensor,
    scales: torch.Tensor | None,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    max_context: int,
    window: int | None = None,
    cap: float | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """As `kernels.attention_decode.decode_attention`, which has the same arguments, on a GPU."""
    sequences, heads, head_dim = query.shape
    _, blocks, kv_heads, block_tokens, _ = store.shape
    seen = max_context if window is None else min(max_context, window)
    plan = plan_decode(sequences, kv_heads, head_dim, seen, multiprocessors(query.device))
    whole, group = plan.splits == 1, heads // kv_heads
    out = query.new_empty(sequences, heads * head_dim)
    sums, peaks = out, out
    if not whole:
        sums = query.new_empty((sequences, heads, plan.splits, head_dim), dtype=torch.float32)
        peaks = query.new_empty((2, sequences, heads, plan.splits), dtype=torch.float32)
    dims = max(_LEAST_OF_A_DOT, triton.next_power_of_2(head_dim))
    with on_device_of(query):
        _attend[(sequences * kv_heads, plan.splits)](
            query,
            as_codes(store, query.dtype),
            query if scales is None else scales,
            block_tables,
            context_lens,
            sums,
            peaks[0],
            peaks[-1],
            query.stride(0),
            block_tables.stride(0),
            blocks * kv_heads * block_tokens,
            heads,
            kv_heads,
            block_tokens,
            head_dim,
            window or 0,
            head_dim**-0.5 if scale is None else scale,
            cap or 0.0,
            plan.splits,
            is_int8=store.dtype is torch.int8,
            is_fp8=store.dtype is torch.float8_e4m3fn,
            native_fp8=converts_fp8(query.device),
            whole=whole,
            group=group,
            rows=max(_LEAST_OF_A_DOT, triton.next_power_of_2(group)),
            dims=dims,
            tile=plan.tile,
            num_warps=4,
            num_stages=2,
        )
        if not whole:
            most = triton.next_power_of_2(plan.splits)
            _join[(sequences * heads,)](
                sums, peaks[0], peaks[1], out, head_dim, plan.splits, most=most, dims=dims
            )
    return out


def as_codes(store: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Bytes of a store that is not in the dtype of the query."""
    return store if store.dtype is dtype else store.view(torch.uint8)
