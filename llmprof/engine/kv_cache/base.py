"""What attention needs from a cache, and the cache that keeps nothing."""

from typing import Protocol

import torch

from llmprof.engine.norm import HeadNorm
from llmprof.engine.step_batch import SequenceRun, StepBatch


class KvCache(Protocol):
    """Each layer appends the keys and values of a step's new rows, then attention reads them all.

    Which tokens a cache holds is known to the step, not here.
    """

    bytes_reserved: int
    """Of the whole store, scales included."""
    bytes_per_token: float
    """Of one sequence, all layers, scales included."""
    appends: bool
    """Whether `append` moves data: without a cache there is no such op."""
    turns: bool
    """Whether `turn_and_append` can be called."""

    def begin_step(self, step: StepBatch) -> None:
        """Prepare what all layers of a step share."""

    def append(self, layer: int, keys_values: torch.Tensor, step: StepBatch) -> None:
        """Take [rows, 2, kv_heads, head_dim]: keys, then values, the keys rotated."""

    def turn_and_append(
        self,
        layer: int,
        heads: torch.Tensor,
        norm: HeadNorm | None,
        tables: tuple[torch.Tensor, torch.Tensor],
        step: StepBatch,
    ) -> None:
        """As `append`, of [rows, heads, head_dim] as they were projected: queries, keys, values.

        Queries and keys are normed and rotated in place first, by cosines and sines, `rope.rotate_`.
        """

    def read(
        self, layer: int, run: SequenceRun, step: StepBatch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values for a run, each [sequences, kv_heads, attended_tokens, head_dim].

        Of a sequence that is shorter than the run's longest, what lies beyond its context is finite
        and has no meaning. Views of the new rows where nothing is cached and of the store where
        `run.first_block` allows it; else a copy, gathered and converted to the model's dtype.
        """


class NoCache:
    """Every step computes the keys and values of the whole context again."""

    bytes_reserved = 0
    bytes_per_token = 0.0
    appends = False
    turns = False

    def __init__(self) -> None:
        self._new: torch.Tensor | None = None

    def begin_step(self, step: StepBatch) -> None:
        pass

    def append(self, layer: int, keys_values: torch.Tensor, step: StepBatch) -> None:
        self._new = keys_values

    def turn_and_append(
        self,
        layer: int,
        heads: torch.Tensor,
        norm: HeadNorm | None,
        tables: tuple[torch.Tensor, torch.Tensor],
        step: StepBatch,
    ) -> None:
        raise AssertionError("asked of `turns` before: there is no cache to append to")

    def read(
        self, layer: int, run: SequenceRun, step: StepBatch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        assert self._new is not None, "append goes before read"
        return new_keys_values(self._new, run)


def new_keys_values(
    keys_values: torch.Tensor, run: SequenceRun
) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of a run's own rows, for sequences that have nothing cached."""
    rows = keys_values.narrow(0, run.first_row, run.num_rows)
    by_sequence = rows.view(run.num_sequences, run.new_tokens, *rows.shape[1:])
    keys, values = by_sequence.unbind(2)
    return keys.transpose(1, 2), values.transpose(1, 2)
