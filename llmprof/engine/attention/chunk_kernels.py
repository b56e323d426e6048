"""Which devices have a kernel of ours for new tokens that follow cached ones."""

from typing import Final, Protocol

import torch

from llmprof.engine.attention.score_rule import PLAIN, ScoreRule
from llmprof.engine.kernels.triton.available import runs_triton


class ChunkKernel(Protocol):
    """Causal attention of several new tokens per sequence that reads the store as stored."""

    @property
    def name(self) -> str: ...

    def __call__(
        self,
        query: torch.Tensor,
        store: torch.Tensor,
        scales: torch.Tensor | None,
        block_tables: torch.Tensor,
        context_lens: torch.Tensor,
        rule: ScoreRule = PLAIN,
    ) -> torch.Tensor:
        """See `kernels.triton.attention_chunk`."""


class GpuChunkKernel:
    name: Final = "llmprof.triton_chunk_attention"

    def __init__(self) -> None:
        """Import triton."""
        from llmprof.engine.kernels.triton.attention_chunk import triton_chunk_attention

        self._attend = triton_chunk_attention

    def __call__(
        self,
        query: torch.Tensor,
        store: torch.Tensor,
        scales: torch.Tensor | None,
        block_tables: torch.Tensor,
        context_lens: torch.Tensor,
        rule: ScoreRule = PLAIN,
    ) -> torch.Tensor:
        return self._attend(
            query, store, scales, block_tables, context_lens, rule.window, rule.cap, rule.scale
        )


def find_chunk_kernel(device: str) -> ChunkKernel | None:
    """For `cpu` or `cuda:N`; None where the cache is viewed or gathered for torch's kernels."""
    return GpuChunkKernel() if runs_triton(device) else None
