"""RMS norm (Zhang and Sennrich 2019): x / sqrt(mean(x^2) + eps) * gain, in fp32 inside.

A GPU has one kernel of torch's for it, but several with an offset of the gains or with gains of each
head; those are one of our own. On a CPU torch takes it apart into eight, whose fixed cost is more
than the arithmetic of a decode step, so there it is one of our own.
"""

from typing import Final

import torch
from torch.nn import functional

from llmprof.engine.kernels.launch import runs_native
from llmprof.engine.kernels.norm import rms_norm, rms_norm_heads_
from llmprof.engine.kernels.pointwise import gpu_kernels

_OWN: Final = "llmprof::rms_norm"


class RmsNorm:
    """Over the last dimension of x [rows, size], with one gain per channel [size].

    `offset` is added to the gains (Gemma): in fp32, since gains near zero are stored more exactly
    than gains near one.
    """

    def __init__(self, gain: torch.Tensor, eps: float, offset: float = 0.0) -> None:
        self.gain = gain
        self.eps = eps
        self.offset = offset

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if runs_native(x):
            return rms_norm(x, self.gain, self.eps, self.offset)
        if self.offset:
            kernels = gpu_kernels(x)
            norm = _offset_norm if kernels is None else kernels.rms_norm
            return norm(x, self.gain, self.eps, self.offset)
        return functional.rms_norm(x, self.gain.shape, self.gain, self.eps)


class HeadNorm:
    """RMS norm of every query and key head by itself, as Qwen3 has it before the rotation."""

    def __init__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        heads: int,
        kv_heads: int,
        eps: float,
        offset: float = 0.0,
    ) -> None:
        """From the gains [head_dim] of queries and of keys."""
        self.gains = torch.cat((query.expand(heads, -1), key.expand(kv_heads, -1)))
        self.eps = eps
        self.offset = offset

    def apply_(self, heads: torch.Tensor) -> None:
        """Norm [rows, query heads + KV heads, head_dim] in place."""
        if runs_native(heads):
            rms_norm_heads_(heads, self.gains, self.eps, self.offset)
            return
        kernels = gpu_kernels(heads)
        if kernels is not None:
            kernels.rms_norm_heads_(heads, self.gains, self.eps, self.offset)
            return
        if self.offset:
            heads.copy_(_offset_norm(heads, self.gains, self.eps, self.offset))
            return
        normed = functional.rms_norm(heads, heads.shape[-1:], None, self.eps)
        if torch.compiler.is_compiling():  # which knows no results that are views
            heads.copy_(normed * self.gains)
            return
        torch.mul(normed, self.gains, out=heads)


def _offset_norm(x: torch.Tensor, gain: torch.Tensor, eps: float, offset: float) -> torch.Tensor:
    normed = functional.rms_norm(x.float(), x.shape[-1:], None, eps)
    return normed.mul_(gain.float() + offset).to(x.dtype)


def kernel_name(device: str, offset: float = 0.0) -> str:
    if runs_native(device):
        return _OWN
    if offset and gpu_kernels(device) is not None:
        return "llmprof::triton_rms_norm"
    return "torch.nn.functional.rms_norm"
