"""What a run asks of attention kernels, known before its weights are loaded."""

from dataclasses import dataclass

import torch

from llmprof.engine.attention.score_rule import PLAIN, ScoreRule


@dataclass(frozen=True, slots=True)
class AttentionNeeds:
    """Of one process: of a model that is shared out, its own heads."""

    device: str
    """`cpu` or `cuda:N`."""
    dtype: torch.dtype
    """Of queries and outputs."""
    stored: torch.dtype
    """Of keys and values in the cache."""
    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_tokens: int | None
    """None: each sequence has one block, as long as the longest sequence."""
    rules: tuple[ScoreRule, ...] = (PLAIN,)
    """Each that some layer has, once."""

    @property
    def on_gpu(self) -> bool:
        return torch.device(self.device).type == "cuda"
