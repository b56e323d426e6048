"""Attention of one new token per sequence to its KV cache, read through block tables, on a GPU.

"Flash-Decoding" (Dao et al. 2023): the tokens of a sequence are split among programs, whose results
the last of them joins. Reads every key and value that a query sees once, for its whole group of
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
from llmprof.engine.kernels.triton.last_program import MOST_SHARED, arrival_counters, is_last

_LEAST_OF_A_DOT: Final = 16
"""Rows, and numbers that are summed: fewer are filled up with zeros."""
_TRITON: Final = tuple(int(part) for part in triton.__version__.split(".")[:2])
_AT_ONCE: Final = 4 if _TRITON < (3, 7) else 3
"""Programs that a multiprocessor has registers for: a thread takes 126 of them with Triton 3.6, and 168
from 3.7 on (16-bit caches, compiled for 9.0)."""
_MOST_SPLITS: Final = 64
_NUMBERS_PER_TILE: Final = 8192
_NUMBERS_PER_JOIN: Final = 8192
"""Of partial sums that the last program of a KV head reads at once: 64 registers of each thread."""


@triton.jit  # type: ignore[untyped-decorator]
def _join(  # type: ignore[no-untyped-def]
    sums,
    peaks,
    masses,
    first,
    out,
    head_dim,
    splits,
    group: tl.constexpr,
    rows: tl.constexpr,
    dims: tl.constexpr,
    most: tl.constexpr,
    at_once: tl.constexpr,
):
    """The splits of the query heads from `first` on, which share a KV head, `at_once` of them together.

    One program reads what many have written: it must not wait for each of them in turn. A split
    without a token has the peak -inf and counts for nothing.
    """
    row, dim, split = tl.arange(0, rows), tl.arange(0, dims), tl.arange(0, most)
    place = (first + row)[:, None] * splits
    exists = (row < group)[:, None] & (split < splits)[None, :]
    all_peaks = tl.load(
        peaks + place + split[None, :], exists, other=-float("inf"), cache_modifier=".cg"
    )
    peak = tl.max(all_peaks, axis=1)
    peak = tl.where(peak == -float("inf"), 0.0, peak)  # of rows that are no heads
    mass = tl.zeros((rows,), dtype=tl.float32)
    total = tl.zeros((rows, dims), dtype=tl.float32)
    for start in range(0, most, at_once):
        nth = start + tl.arange(0, at_once)
        made = (row < group)[:, None] & (nth < splits)[None, :]
        own = place + nth[None, :]
        own_peaks = tl.load(peaks + own, made, other=-float("inf"), cache_modifier=".cg")
        shares = tl.exp(own_peaks - peak[:, None])
        own_masses = tl.load(masses + own, made, other=0.0, cache_modifier=".cg")
        mass += tl.sum(shares * own_masses, axis=1)
        numbers = made[:, :, None] & (dim < head_dim)[None, None, :]
        given = sums + own[:, :, None] * head_dim + dim[None, None, :]
        parts = tl.load(given, numbers, other=0.0, cache_modifier=".cg")
        total += tl.sum(shares[:, :, None] * parts, axis=1)
    result = total / mass[:, None]
    target = out + (first + row)[:, None] * head_dim + dim[None, :]
    used = (row < group)[:, None] & (dim < head_dim)[None, :]
    tl.store(target, result.to(out.dtype.element_ty), used)


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    query,
    store,
    scales,
    tables,
    context_lens,
    out,
    parts,
    peaks,
    masses,
    counters,
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
    shared: tl.constexpr,
    most: tl.constexpr,
    at_once: tl.constexpr,
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
    first_head = sequence.to(tl.int64) * heads + head * group
    place = first_head + row
    if whole:
        result = (sums / mass[:, None]).to(out.dtype.element_ty)
        tl.store(out + place[:, None] * head_dim + dim[None, :], result, used)
    else:
        place = place * splits + tl.program_id(1)
        tl.store(parts + place[:, None] * head_dim + dim[None, :], sums, used)
        tl.store(peaks + place, peak, row < group)
        tl.store(masses + place, mass, row < group)
        if is_last(counters, tl.program_id(0), splits):
            _join(
                parts,
                peaks,
                masses,
                first_head,
                out,
                head_dim,
                splits,
                group,
                shared,
                dims,
                most,
                at_once,
            )


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """How the tokens are cut."""

    tile: int
    """Tokens at once."""
    splits: int


def plan_decode(
    sequences: int, kv_heads: int, head_dim: int, seen_tokens: int, num_multiprocessors: int
) -> DecodePlan:
    """As many programs as a GPU runs at once: one more, and all would wait for a second round of them.

    `seen_tokens`: of the longest sequence, within its window.
    """
    dims = max(_LEAST_OF_A_DOT, triton.next_power_of_2(head_dim))
    tile = max(_LEAST_OF_A_DOT, min(64, _NUMBERS_PER_TILE // dims))
    shared = sequences * kv_heads
    wanted = _AT_ONCE * num_multiprocessors // shared
    useful = -(-seen_tokens // tile)
    most = _MOST_SPLITS if shared <= MOST_SHARED else 1
    return DecodePlan(tile, max(1, min(wanted, useful, most)))


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
    shared, most = triton.next_power_of_2(group), triton.next_power_of_2(plan.splits)
    with on_device_of(query):
        _attend[(sequences * kv_heads, plan.splits)](
            query,
            as_codes(store, query.dtype),
            query if scales is None else scales,
            block_tables,
            context_lens,
            out,
            sums,
            peaks[0],
            peaks[-1],
            context_lens if whole else arrival_counters(query.device),
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
            shared=shared,
            most=most,
            at_once=max(1, min(most, _NUMBERS_PER_JOIN // (shared * dims))),
            num_warps=4,
            num_stages=2,
        )
    return out


def as_codes(store: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Bytes of a store that is not in the dtype of the query."""
    return store if store.dtype is dtype else store.view(torch.uint8)
