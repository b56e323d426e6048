"""Rotary position embedding in place, on a GPU.

torch takes three passes: it rolls the heads into a copy, multiplies, and adds.
"""

import torch
import triton
import triton.language as tl

from llmprof.engine.kernels.launch import observable
from llmprof.engine.kernels.triton.gpu import on_device_of

_HEADS_AT_ONCE = 8


@triton.jit  # type: ignore[untyped-decorator]
def _rotate(  # type: ignore[no-untyped-def]
    heads,
    cos,
    sin,
    row_stride,
    head_stride,
    num_heads,
    half,
    at_once: tl.constexpr,
    padded_half: tl.constexpr,
):
    """Some heads of one row: both channels of a pair are read before either is written."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * at_once + tl.arange(0, at_once)[:, None]
    pair = tl.arange(0, padded_half)[None, :]
    inside = (head < num_heads) & (pair < half)
    angles = row * 2 * half + pair
    given = heads + row * row_stride + head * head_stride + pair
    first = tl.load(given, inside, other=0.0).to(tl.float32)
    second = tl.load(given + half, inside, other=0.0).to(tl.float32)
    turned = first * tl.load(cos + angles, pair < half, other=0.0).to(tl.float32)
    turned += second * tl.load(sin + angles, pair < half, other=0.0).to(tl.float32)
    tl.store(given, turned.to(heads.dtype.element_ty), inside)
    turned = second * tl.load(cos + angles + half, pair < half, other=0.0).to(tl.float32)
    turned += first * tl.load(sin + angles + half, pair < half, other=0.0).to(tl.float32)
    tl.store(given + half, turned.to(heads.dtype.element_ty), inside)


@observable("triton_rotate_", mutates=("heads",))
def triton_rotate_(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """As `kernels.rotary.rotate_`, on a GPU."""
    rows, num_heads, rotary_dim = heads.shape
    half = rotary_dim // 2
    with on_device_of(heads):
        _rotate[(rows, triton.cdiv(num_heads, _HEADS_AT_ONCE))](
            heads,
            cos,
            sin,
            heads.stride(0),
            heads.stride(1),
            num_heads,
            half,
            at_once=_HEADS_AT_ONCE,
            padded_half=triton.next_power_of_2(half),
            num_warps=2,
        )
