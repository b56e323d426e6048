"""The new tokens of all sequences of one step, as rows: what one forward pass works on."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class SequenceRun:
    """Neighbouring sequences of a step that bring as many new tokens each: one call of attention.

    All sequences that decode (one new token after cached ones) are one run, whatever their
    contexts. A longer piece of a prompt is a run of its own; sequences of one shape share a run
    where the cache holds them side by side (`first_block`).
    """

    first_row: int
    first_sequence: int
    num_sequences: int
    new_tokens: int
    """Of each sequence."""
    cached_tokens: int
    """Of each sequence; of the longest where `same_context` is false."""
    same_context: bool
    first_block: int | None = None
    """The sequences' only blocks are this one and the next ones: what they attend to can be read as
    a view. None where a block table is needed."""

    @property
    def num_rows(self) -> int:
        return self.num_sequences * self.new_tokens

    @property
    def decodes(self) -> bool:
        """One new token after cached ones, in each sequence."""
        return self.new_tokens == 1 and self.cached_tokens > 0

    @property
    def attended_tokens(self) -> int:
        """Cached and new ones, of the longest sequence."""
        return self.cached_tokens + self.new_tokens


@dataclass(slots=True)
class StepBatch:
    """Rows in the order of their sequences, each sequence's tokens in order.

    All tensors are on the model's device. A loop of decode steps may keep one object and change the
    numbers in its tensors: their addresses stay, so that a captured graph can be replayed.
    """

    ids: torch.Tensor
    """[rows] int64."""
    positions: torch.Tensor
    """[rows] int32, within each sequence."""
    slots: torch.Tensor
    """[rows] int32: where the cache takes the row, block * block_tokens + offset in the block.
    Not read without a cache."""
    block_tables: torch.Tensor
    """[sequences, width] int32: the blocks that hold a sequence's tokens, in order. What lies
    beyond `context_lens` is a valid block number without meaning. Not read without a cache."""
    context_lens: torch.Tensor
    """[sequences] int32: tokens to attend to, cached and new."""
    runs: tuple[SequenceRun, ...]
    """Every sequence and every row, in order."""
    logit_rows: torch.Tensor | None = None
    """[n] int32 or int64, ascending: rows that reach the head; None for all of them."""
    host_context_lens: tuple[int, ...] | None = None
    """The numbers of `context_lens`, for kernels that plan on the host; None: ask the device."""

    @property
    def num_rows(self) -> int:
        return self.ids.shape[0]

    @property
    def num_sequences(self) -> int:
        return self.context_lens.shape[0]
