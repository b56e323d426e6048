"""What the model calls, and what attends fast where a device has a kernel for it.

Query heads h * group ... (h + 1) * group - 1 share KV head h (Ainslie et al. 2023): a KV head's
queries are folded into rows of one product instead of repeating its keys and values.
"""

from typing import Protocol

import torch

from llmprof.engine.attention.chunk_kernels import ChunkKernel
from llmprof.engine.attention.prefill_kernels import PrefillKernel
from llmprof.engine.attention.score_rule import PLAIN, ScoreRule
from llmprof.engine.attention.step_kernels import StepKernel
from llmprof.engine.kv_cache import KvCache
from llmprof.engine.step_batch import StepBatch


class Attention(Protocol):
    kernel: str
    """The kernels that run, where the next four do not."""
    decode_kernel: "DecodeKernel | None"
    prefill_kernel: PrefillKernel | None
    chunk_kernel: ChunkKernel | None
    step_kernel: StepKernel | None
    """In place of the other three, where anything is cached."""

    def begin_step(self, step: StepBatch) -> None:
        """Prepare what all layers of a step share."""

    def before_replay(self, step: StepBatch, block_tokens: int) -> None:
        """See `step_kernels.StepKernel`."""

    def __call__(
        self, query: torch.Tensor, cache: KvCache, layer: int, step: StepBatch
    ) -> torch.Tensor:
        """Attend from every new token to all tokens of its sequence up to itself.

        Args:
            query: [rows, heads, head_dim], rotated; a view into the fused projection's output.
            cache: where this layer's keys and values are, those of the new tokens included.
            layer: whose keys and values.
            step: which rows belong to which sequence, and where their tokens lie.

        Returns:
            [rows, heads * head_dim].
        """


class DecodeKernel(Protocol):
    """Attention of one new token per sequence that reads the store through block tables, as stored."""

    @property
    def name(self) -> str: ...

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
        """Attend from each sequence's last token.

        Args:
            query: [sequences, heads, head_dim], rotated; rows at any stride, dense within.
            store: keys and values [2, blocks, kv_heads, block_tokens, head_dim], contiguous, in
                the query's dtype, int8 or float8_e4m3fn.
            scales: [2, blocks, kv_heads, block_tokens] float32 for int8, else None.
            block_tables: [sequences, width] int32, rows may be strided.
            context_lens: [sequences] int32, at least 1: tokens attended to.
            max_context: the largest of them.
            rule: of the layer.

        Returns:
            [sequences, heads * head_dim], in the query's dtype.
        """
