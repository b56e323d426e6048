"""Which devices have a kernel of ours for decoding tokens."""

from typing import Final

import torch

from llmprof.engine.attention.base import DecodeKernel
from llmprof.engine.attention.score_rule import PLAIN, ScoreRule
from llmprof.engine.kernels.attention_decode import decode_attention
from llmprof.engine.kernels.launch import runs_native
from llmprof.engine.kernels.triton.available import runs_triton


class CpuDecodeKernel:
    """Reads the store where it lies; see `kernels.attention_decode`."""

    name: Final = "llmprof.decode_attention"

    def __call__(
        self,
        query: torch.Tensor,
        store: torch.Tensor,
        scales: torch.Tensor | None,
        block_tables: torch.Tensor,
        context_lens: torch.Tensor,
        max_context: int,
        rule: ScoreRule = PLAIN,
    ) -> torch.Tensor:
        return decode_attention(
            query,
            store,
            scales,
            block_tables,
            context_lens,
            max_context,
            rule.window,
            rule.cap,
            rule.scale,
        )


class GpuDecodeKernel:
    """Reads the store where it lies; see `kernels.triton.attention_decode`."""

    name: Final = "llmprof.triton_decode_attention"

    def __init__(self) -> None:
        """Import triton."""
        from llmprof.engine.kernels.triton.attention_decode import triton_decode_attention

        self._attend = triton_decode_attention

    def __call__(
        self,
        query: torch.Tensor,
        store: torch.Tensor,
        scales: torch.Tensor | None,
        block_tables: torch.Tensor,
        context_lens: torch.Tensor,
        max_context: int,
        rule: ScoreRule = PLAIN,
    ) -> torch.Tensor:
        return self._attend(
            query,
            store,
            scales,
            block_tables,
            context_lens,
            max_context,
            rule.window,
            rule.cap,
            rule.scale,
        )


def find_decode_kernel(device: str) -> DecodeKernel | None:
    """For `cpu` or `cuda:N`; None where the cache is gathered and torch's kernels are used."""
    if runs_native(device):
        return CpuDecodeKernel()
    return GpuDecodeKernel() if runs_triton(device) else None
