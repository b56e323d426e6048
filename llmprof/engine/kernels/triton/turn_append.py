"""New queries and keys normed, rotated, and the keys and values appended to a cache, in one launch.

What `norm`, `rotary` and `kv_append` do one after the other, with the roundings between them: for few
rows, where starting a kernel costs more than what it moves.
"""

import torch
import triton
import triton.language as tl

from llmprof.engine.kernels.launch import observable
from llmprof.engine.kernels.triton.gpu import on_device_of
from llmprof.engine.kernels.triton.kv_append import store_vector


@triton.jit  # type: ignore[untyped-decorator]
def _numbers_of(  # type: ignore[no-untyped-def]
    head, gains, dim, inside, inverse, offset, has_norm: tl.constexpr
):
    """Channels of a head, normed and rounded to their dtype where it has a norm; float32."""
    numbers = tl.load(head + dim, inside, other=0.0)
    wide = numbers.to(tl.float32)
    if has_norm:
        gain = tl.load(gains + dim, inside, other=0.0).to(tl.float32) + offset
        wide = (wide * inverse * gain).to(numbers.dtype).to(tl.float32)
    return wide


@triton.jit  # type: ignore[untyped-decorator]
def _turn_append(  # type: ignore[no-untyped-def]
    heads,
    gains,
    cos,
    sin,
    store,
    scales,
    slots,
    row_stride,
    blocks,
    query_heads,
    kv_heads,
    block_tokens,
    head_dim,
    half,
    eps,
    offset,
    has_norm: tl.constexpr,
    is_int8: tl.constexpr,
    is_fp8: tl.constexpr,
    dims: tl.constexpr,
):
    """One head of one row: a query, a key or a value."""
    row, nth = tl.program_id(0).to(tl.int64), tl.program_id(1)
    dim = tl.arange(0, dims)
    inside = dim < head_dim
    head = heads + row * row_stride + nth * head_dim
    numbers = tl.load(head + dim, inside, other=0.0)
    if nth < query_heads + kv_heads:
        inverse = 1.0
        own_gains = gains
        if has_norm:
            own_gains = gains + nth * head_dim
            wide = numbers.to(tl.float32)
            inverse = 1.0 / tl.sqrt_rn(tl.sum(wide * wide, axis=0) / head_dim + eps)
        turns = dim < 2 * half
        opposite = tl.where(dim < half, dim + half, tl.where(turns, dim - half, dim))
        own = _numbers_of(head, own_gains, dim, inside, inverse, offset, has_norm)
        other = _numbers_of(head, own_gains, opposite, inside, inverse, offset, has_norm)
        angle = row * 2 * half + dim
        turned = own * tl.load(cos + angle, turns, other=1.0).to(tl.float32)
        turned = tl.fma(other, tl.load(sin + angle, turns, other=0.0).to(tl.float32), turned)
        numbers = turned.to(numbers.dtype)
        tl.debug_barrier()  # every channel has been read, by whichever thread turns it
        tl.store(head + dim, numbers, inside)
    if nth >= query_heads:
        slot = tl.load(slots + row).to(tl.int64)
        stored = nth - query_heads
        block = (stored // kv_heads).to(tl.int64) * blocks + slot // block_tokens
        vector = (block * kv_heads + stored % kv_heads) * block_tokens + slot % block_tokens
        store_vector(numbers, store, scales, vector, dim, head_dim, is_int8, is_fp8)


@observable("triton_turn_append_", mutates=("heads", "store", "scales"))
def triton_turn_append_(
    heads: torch.Tensor,
    gains: torch.Tensor | None,
    eps: float,
    offset: float,
    cos: torch.Tensor,
    sin: torch.Tensor,
    store: torch.Tensor,
    scales: torch.Tensor | None,
    slots: torch.Tensor,
) -> None:
    """Norm and rotate queries and keys in place, and put keys and values where the cache keeps them.

    Args:
        heads: [rows, query heads + 2 * KV heads, head_dim], rows at any stride and dense within:
            queries, keys, values.
        gains: of each query and key head [query heads + KV heads, head_dim]; None without a norm.
        eps: added to the mean square.
        offset: added to the gains.
        cos: [rows, 1, rotary_dim], contiguous: the first channels of each head turn.
        sin: as `cos`, negative in the first half.
        store: see `kernels.kv_append.kv_append_`.
        scales: likewise.
        slots: likewise.
    """
    rows, num_heads, head_dim = heads.shape
    _, blocks, kv_heads, block_tokens, _ = store.shape
    is_fp8 = store.dtype is torch.float8_e4m3fn
    with on_device_of(heads):
        _turn_append[(rows, num_heads)](
            heads,
            heads if gains is None else gains,
            cos,
            sin,
            store.view(torch.uint8) if is_fp8 else store,
            slots if scales is None else scales,
            slots,
            heads.stride(0),
            blocks,
            num_heads - 2 * kv_heads,
            kv_heads,
            block_tokens,
            head_dim,
            cos.shape[-1] // 2,
            eps,
            offset,
            has_norm=gains is not None,
            is_int8=store.dtype is torch.int8,
            is_fp8=is_fp8,
            dims=triton.next_power_of_2(head_dim),
            num_warps=1,
            enable_fp_fusion=False,  # a product is rounded before it is rounded to an integer
        )
