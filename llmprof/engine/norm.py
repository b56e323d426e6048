"""RMS norm (Zhang and Sennrich 2019): x / sqrt(mean(x^2) + eps) * gain, in fp32 inside.

A GPU has one kernel for it. On a CPU torch takes it apart into eight, which cost a small model more
than the arithmetic; five do the same.
"""

import torch
from torch.nn import functional


class RmsNorm:
    """Over the last dimension of x [..., size], with one gain per channel [size]."""

    def __init__(self, gain: torch.Tensor, eps: float) -> None:
        self._gain = gain
        self._scale = _InverseRms(eps, gain.shape[-1])

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.is_cpu:
            return (x * self._scale(x)).mul_(self._gain).to(x.dtype)
        return functional.rms_norm(x, self._gain.shape, self._gain, self._scale.eps)


class HeadNorm:
    """RMS norm of every query and key head by itself, as Qwen3 has it before the rotation."""

    def __init__(
        self, query: torch.Tensor, key: torch.Tensor, heads: int, kv_heads: int, eps: float
    ) -> None:
        """From the gains [head_dim] of queries and of keys."""
        self._gains = torch.cat((query.expand(heads, -1), key.expand(kv_heads, -1)))
        self._scale = _InverseRms(eps, query.shape[-1])

    def apply_(self, heads: torch.Tensor) -> None:
        """Norm [..., query heads + KV heads, head_dim] in place."""
        if heads.is_cpu:
            normed = heads * self._scale(heads)
        else:
            normed = functional.rms_norm(heads, heads.shape[-1:], None, self._scale.eps)
        torch.mul(normed, self._gains, out=heads)


class _InverseRms:
    def __init__(self, eps: float, size: int) -> None:
        self.eps = eps
        self._eps = torch.tensor(eps)
        self._share = 1 / size

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """1 / sqrt(mean(x^2) + eps), [..., 1] in fp32."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        return torch.addcmul(self._eps, length, length, value=self._share).rsqrt_()


def kernel_name(device: str) -> str:
    if torch.device(device).type == "cpu":
        return "torch.linalg.vector_norm, torch.rsqrt, torch.mul"
    return "torch.nn.functional.rms_norm"
