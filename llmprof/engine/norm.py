"""RMS norm (Zhang and Sennrich 2019): x / sqrt(mean(x^2) + eps) * gain, in fp32 inside."""

from dataclasses import dataclass
from typing import Final

import torch
from torch.nn import functional

KERNEL: Final = "torch.nn.functional.rms_norm"


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """Over the last dimension of x [..., size], with one gain per channel [size]."""

    gain: torch.Tensor
    eps: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, self.gain.shape, self.gain, self.eps)


@dataclass(frozen=True, slots=True)
class HeadNorm:
    """RMS norm of every query and key head by itself, as Qwen3 has it before the rotation."""

    gains: torch.Tensor
    """[query heads + KV heads, head_dim]: the query gain and the key gain, once per head."""
    eps: float

    @classmethod
    def of(
        cls, query: torch.Tensor, key: torch.Tensor, heads: int, kv_heads: int, eps: float
    ) -> "HeadNorm":
        """From the gains [head_dim] of queries and of keys."""
        gains = torch.cat((query.expand(heads, -1), key.expand(kv_heads, -1)))
        return cls(gains, eps)

    def apply_(self, heads: torch.Tensor) -> None:
        """Norm [..., query heads + KV heads, head_dim] in place."""
        normed = functional.rms_norm(heads, self.gains.shape[-1:], None, self.eps)
        torch.mul(normed, self.gains, out=heads)
