"""The gate of SwiGLU and GeGLU (Shazeer 2020) in one pass, on a GPU.

torch takes two: it writes the activated gate and reads it back.
"""

import torch
import triton
import triton.language as tl

from llmprof.engine.kernels.launch import observable
from llmprof.engine.kernels.triton.gpu import on_device_of

_BLOCK = 1024


# Triton compiles annotations too, and knows no others than its own.
@triton.jit  # type: ignore[untyped-decorator]
def _gate(gate_up, out, row_stride, inner, is_silu: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < inner
    given = gate_up + row * row_stride + column
    gate = tl.load(given, inside, other=0.0).to(tl.float32)
    up = tl.load(given + inner, inside, other=0.0).to(tl.float32)
    # 0.5 * (1 + tanh(z)) is the sigmoid of 2 z
    z = gate if is_silu else 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    product = gate * tl.sigmoid(z) * up
    tl.store(out + row * inner + column, product.to(out.dtype.element_ty), inside)


def _half(gate_up: torch.Tensor) -> torch.Tensor:
    """Room for the product."""
    return gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)


@observable("triton_silu_mul", fake=_half)
def triton_silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """As `kernels.activation.silu_mul`, on a GPU; rows at any stride."""
    return _gated(gate_up, is_silu=True)


@observable("triton_gelu_tanh_mul", fake=_half)
def triton_gelu_tanh_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """As `kernels.activation.gelu_tanh_mul`, on a GPU; rows at any stride."""
    return _gated(gate_up, is_silu=False)


def _gated(gate_up: torch.Tensor, *, is_silu: bool) -> torch.Tensor:
    out = _half(gate_up)
    rows, inner = out.shape
    with on_device_of(out):
        _gate[(rows, triton.cdiv(inner, _BLOCK))](
            gate_up, out, gate_up.stride(0), inner, is_silu=is_silu, block=_BLOCK
        )
    return out
