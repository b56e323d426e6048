"""Keys and values of new tokens into the blocks of a KV cache, quantized on the way, on a GPU.

torch takes several passes to find the places of a step and one per layer to write them; numbers that
are quantized take it several more per layer.
"""

import torch
import triton
import triton.language as tl

from llmprof.engine.kernels.launch import observable
from llmprof.engine.kernels.triton.gpu import on_device_of


@triton.jit
def fp8_codes(numbers):  # type: ignore[no-untyped-def]
    """float32 to float8_e4m3fn as uint8, to the nearest, ties to even; too large ones become 448.

    By bits, since only GPUs from compute capability 8.9 on convert themselves.
    """
    bits = numbers.to(tl.int32, bitcast=True)
    size = tl.minimum(tl.abs(numbers), 448.0)
    of_size = size.to(tl.int32, bitcast=True)
    # 3 of 23 bits of the mantissa stay; exponents are biased by 7 instead of 127
    normal = ((of_size + 0x7FFFF + ((of_size >> 20) & 1)) >> 20) - (120 << 3)
    # below 2^-6 codes count multiples of 2^-9: the sum with 2^23 has no bits for less than one
    small = (size * 512.0 + 8388608.0).to(tl.int32, bitcast=True) & 15
    code = tl.where(size < 0.015625, small, normal)
    code = tl.where(numbers != numbers, 0x7F, code)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit  # type: ignore[untyped-decorator]
def store_vector(  # type: ignore[no-untyped-def]
    numbers,
    store,
    scales,
    vector,
    dim,
    head_dim,
    is_int8: tl.constexpr,
    is_fp8: tl.constexpr,
):
    """K or V of one token and head, quantized where the store is.

    Compile without fused products (`enable_fp_fusion`): what is rounded to integers is multiplied first.
    """
    inside = dim < head_dim
    target = store + vector * head_dim + dim
    if is_int8:
        numbers = numbers.to(tl.float32)
        step = tl.div_rn(tl.max(tl.abs(numbers), axis=0), 127.0)
        inverse = tl.where(step > 0, tl.div_rn(1.0, step), 0.0)
        # the sum with 1.5 * 2^23 has no bits for less than one: rounds to the nearest, ties to even
        whole = (numbers * inverse + 12582912.0).to(tl.int32, bitcast=True) - 0x4B400000
        tl.store(scales + vector, step)
        tl.store(target, whole.to(tl.int8), inside)
    elif is_fp8:
        tl.store(target, fp8_codes(numbers.to(tl.float32)), inside)
    else:
        tl.store(target, numbers, inside)


@triton.jit  # type: ignore[untyped-decorator]
def _append(  # type: ignore[no-untyped-def]
    new,
    store,
    scales,
    slots,
    row_stride,
    blocks,
    kv_heads,
    block_tokens,
    head_dim,
    is_int8: tl.constexpr,
    is_fp8: tl.constexpr,
    dims: tl.constexpr,
):
    """K or V of one token and head."""
    row, nth = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(slots + row).to(tl.int64)
    block = (nth // kv_heads).to(tl.int64) * blocks + slot // block_tokens
    vector = (block * kv_heads + nth % kv_heads) * block_tokens + slot % block_tokens
    dim = tl.arange(0, dims)
    numbers = tl.load(new + row * row_stride + nth * head_dim + dim, dim < head_dim, other=0.0)
    store_vector(numbers, store, scales, vector, dim, head_dim, is_int8, is_fp8)


@observable("triton_kv_append_", mutates=("store", "scales"))
def triton_kv_append_(
    keys_values: torch.Tensor,
    store: torch.Tensor,
    scales: torch.Tensor | None,
    slots: torch.Tensor,
) -> None:
    """As `kernels.kv_append.kv_append_`, on a GPU."""
    rows, parts, kv_heads, head_dim = keys_values.shape
    is_fp8 = store.dtype is torch.float8_e4m3fn
    with on_device_of(store):
        _append[(rows, parts * kv_heads)](
            keys_values,
            store.view(torch.uint8) if is_fp8 else store,
            slots if scales is None else scales,
            slots,
            keys_values.stride(0),
            store.shape[1],
            kv_heads,
            store.shape[3],
            head_dim,
            is_int8=store.dtype is torch.int8,
            is_fp8=is_fp8,
            dims=triton.next_power_of_2(head_dim),
            num_warps=1,
            enable_fp_fusion=False,  # a product is rounded before it is rounded to an integer
        )
