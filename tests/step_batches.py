"""Steps written out by hand: every sequence's blocks are scattered over the store."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from llmprof.engine.step_batch import SequenceRun, StepBatch

Shape = tuple[int, int]
"""Cached and new tokens of a sequence."""


@dataclass(frozen=True, slots=True)
class Scattered:
    """Block tables for a batch, and the steps that read and write through them."""

    tables: list[list[int]]
    block_tokens: int
    num_blocks: int

    @classmethod
    def of(cls, num_sequences: int, max_tokens: int, block_tokens: int, seed: int) -> "Scattered":
        width = -(-max_tokens // block_tokens)
        num_blocks = num_sequences * width + 3
        numbers = list(range(num_blocks))
        random.Random(seed).shuffle(numbers)
        tables = [numbers[i * width : (i + 1) * width] for i in range(num_sequences)]
        return cls(tables, block_tokens, num_blocks)

    def step(self, shapes: Sequence[Shape]) -> StepBatch:
        """Sequences that decode have to come first, and are one run."""
        positions, slots, runs = [], [], []
        for table, (cached, new) in zip(self.tables, shapes, strict=True):
            for position in range(cached, cached + new):
                block = table[position // self.block_tokens]
                positions.append(position)
                slots.append(block * self.block_tokens + position % self.block_tokens)
        decodes = [cached for cached, new in shapes if new == 1 and cached]
        if decodes:
            same = len(set(decodes)) == 1
            runs.append(SequenceRun(0, 0, len(decodes), 1, max(decodes), same))
        row = len(decodes)
        for index, (cached, new) in list(enumerate(shapes))[len(decodes) :]:
            runs.append(SequenceRun(row, index, 1, new, cached, same_context=True))
            row += new
        return StepBatch(
            ids=torch.zeros(row, dtype=torch.int32),
            positions=torch.tensor(positions, dtype=torch.int32),
            slots=torch.tensor(slots, dtype=torch.int32),
            block_tables=torch.tensor(self.tables, dtype=torch.int32),
            context_lens=torch.tensor([sum(shape) for shape in shapes], dtype=torch.int32),
            runs=tuple(runs),
        )


def side_by_side(num_sequences: int, cached: int, new: int, max_tokens: int) -> StepBatch:
    """A static batch in a contiguous store: sequence i is block i."""
    positions = torch.arange(cached, cached + new, dtype=torch.int32).repeat(num_sequences)
    first = torch.arange(num_sequences, dtype=torch.int32)
    run = SequenceRun(0, 0, num_sequences, new, cached, same_context=True, first_block=0)
    return StepBatch(
        ids=torch.zeros(num_sequences * new, dtype=torch.int32),
        positions=positions,
        slots=first.repeat_interleave(new) * max_tokens + positions,
        block_tables=first.view(-1, 1),
        context_lens=torch.full((num_sequences,), cached + new, dtype=torch.int32),
        runs=(run,),
    )
