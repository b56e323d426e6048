"""Kernels that attend for a whole step at once, decoding tokens and pieces of prompts alike."""

from typing import Protocol

import torch

from llmprof.engine.attention.score_rule import PLAIN, ScoreRule
from llmprof.engine.step_batch import StepBatch


class StepKernel(Protocol):
    """Causal attention of all new tokens of a step that reads the store through block tables."""

    @property
    def name(self) -> str: ...

    def begin_step(self, step: StepBatch) -> None:
        """Forget what the layers of the step before shared; part of what a graph captures."""

    def before_replay(self, step: StepBatch, block_tokens: int) -> None:
        """Do on the host what a captured step needs; its numbers are in the step's tensors.

        `block_tokens`: of the cache.
        """

    def __call__(
        self, query: torch.Tensor, store: torch.Tensor, step: StepBatch, rule: ScoreRule = PLAIN
    ) -> torch.Tensor:
        """Attend from every new token to all tokens of its sequence up to itself.

        Args:
            query: [rows, heads, head_dim], rotated; rows at any stride, dense within.
            store: of a layer, keys and values [2, blocks, kv_heads, block_tokens, head_dim],
                contiguous, those of the new tokens included.
            step: which rows belong to which sequence, and where their tokens lie.
            rule: of the layer.

        Returns:
            [rows, heads * head_dim], in the query's dtype.
        """
