"""From rows to heads and back, without moving a key or a value."""

import torch

from llmprof.engine.step_batch import SequenceRun


def by_kv_head(query: torch.Tensor, run: SequenceRun, kv_heads: int) -> torch.Tensor:
    """[rows, heads, head_dim] -> view [sequences, kv_heads, group, new_tokens, head_dim] of a run."""
    rows = query.narrow(0, run.first_row, run.num_rows)
    heads = rows.shape[1]
    grouped = rows.view(run.num_sequences, run.new_tokens, kv_heads, heads // kv_heads, -1)
    return grouped.permute(0, 2, 3, 1, 4)


def by_token(out: torch.Tensor) -> torch.Tensor:
    """[sequences, kv_heads, group, new_tokens, head_dim] -> [rows, heads * head_dim]."""
    return out.permute(0, 3, 1, 2, 4).flatten(0, 1).flatten(1)
