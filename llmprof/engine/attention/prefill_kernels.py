"""Which devices have a kernel of ours for the new tokens of prompts."""

from typing import Final, Protocol

import torch

from llmprof.engine.kernels.attention_prefill import prefill_attention, prefill_attention_fits
from llmprof.engine.kernels.launch import runs_native
from llmprof.engine.kernels.tiles import tiles_available


class PrefillKernel(Protocol):
    """Causal attention of many new tokens per sequence to gathered or viewed keys and values."""

    @property
    def name(self) -> str: ...

    def fits(self, *, dtype: torch.dtype, group: int, head_dim: int, new_tokens: int) -> bool:
        """Whether it can do such a run; `group` query heads share a KV head."""

    def __call__(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """See `kernels.attention_prefill`."""


class CpuPrefillKernel:
    """AMX tiles; see `kernels.attention_prefill`."""

    name: Final = "llmprof.prefill_attention"

    def fits(self, *, dtype: torch.dtype, group: int, head_dim: int, new_tokens: int) -> bool:
        return prefill_attention_fits(dtype, group, head_dim, new_tokens)

    def __call__(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        return prefill_attention(query, keys, values)


def find_prefill_kernel(device: str) -> PrefillKernel | None:
    """For `cpu` or `cuda:N`; None where torch's kernels are used."""
    return CpuPrefillKernel() if runs_native(device) and tiles_available() else None
