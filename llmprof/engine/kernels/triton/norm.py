"""RMS norm where torch has no single kernel for it, on a GPU: of heads, and with an offset of gains."""

import torch
import triton
import triton.language as tl

from llmprof.engine.kernels.launch import observable
from llmprof.engine.kernels.triton.gpu import on_device_of

_NUMBERS_PER_WARP = 512


@triton.jit  # type: ignore[untyped-decorator]
def _norm(x, gains, out, x_stride, out_stride, parts, size, eps, offset, padded: tl.constexpr):  # type: ignore[no-untyped-def]
    """One of the `parts` of a row, which lie side by side and have their own gains."""
    row, part = (tl.program_id(0) // parts).to(tl.int64), tl.program_id(0) % parts
    column = tl.arange(0, padded)
    inside = column < size
    place = part * size + column
    numbers = tl.load(x + row * x_stride + place, inside, other=0.0).to(tl.float32)
    gain = tl.load(gains + place, inside, other=0.0).to(tl.float32) + offset
    mean = tl.sum(numbers * numbers, axis=0) / size
    normed = numbers * (1.0 / tl.sqrt_rn(mean + eps)) * gain
    tl.store(out + row * out_stride + place, normed.to(out.dtype.element_ty), inside)


@observable("triton_rms_norm", fake=lambda x, *_: x.new_empty(x.shape))
def triton_rms_norm(
    x: torch.Tensor, gains: torch.Tensor, eps: float, offset: float = 0.0
) -> torch.Tensor:
    """As `kernels.norm.rms_norm`, on a GPU."""
    out = x.new_empty(x.shape)
    _launch(x.unsqueeze(1), gains, out.unsqueeze(1), eps, offset)
    return out


@observable("triton_rms_norm_heads_", mutates=("heads",))
def triton_rms_norm_heads_(
    heads: torch.Tensor, gains: torch.Tensor, eps: float, offset: float = 0.0
) -> None:
    """As `kernels.norm.rms_norm_heads_`, on a GPU."""
    _launch(heads, gains, heads, eps, offset)


def _launch(
    x: torch.Tensor, gains: torch.Tensor, out: torch.Tensor, eps: float, offset: float
) -> None:
    """Of [rows, parts, size], dense within a row."""
    rows, parts, size = x.shape
    padded = triton.next_power_of_2(size)
    with on_device_of(x):
        _norm[(rows * parts,)](
            x,
            gains,
            out,
            x.stride(0),
            out.stride(0),
            parts,
            size,
            eps,
            offset,
            padded=padded,
            num_warps=max(1, min(8, padded // _NUMBERS_PER_WARP)),
        )
