"""Tensors at fixed addresses that a recorded decode step reads; each step's numbers go into them."""

import dataclasses
from dataclasses import dataclass

import torch

from llmprof.engine.rope import Turn
from llmprof.engine.step_batch import StepBatch


@dataclass(frozen=True, slots=True)
class DecodeInputs:
    """What `Decoder.through_layers` is given."""

    x: torch.Tensor
    """Embedded tokens [rows, hidden_size]; a step uses them up."""
    turn: Turn
    step: StepBatch

    @classmethod
    def like(cls, x: torch.Tensor, turn: Turn, step: StepBatch) -> "DecodeInputs":
        """For steps of one shape, holding the numbers of this one."""
        own_step = dataclasses.replace(
            step,
            slots=torch.empty_like(step.slots),
            block_tables=step.block_tables.new_zeros(step.num_sequences, table_width(step)),
            context_lens=torch.empty_like(step.context_lens),
            logit_rows=None,
        )
        own_turn = tuple(torch.empty_like(table) for table in turn)
        inputs = cls(torch.empty_like(x), own_turn, own_step)
        inputs.copy_(x, turn, step)
        return inputs

    def copy_(self, x: torch.Tensor, turn: Turn, step: StepBatch) -> None:
        """Take over the numbers of a step of the same shape."""
        own = self.step
        pairs = (
            (self.x, x),
            *zip(self.turn, turn, strict=True),
            (own.slots, step.slots),
            (own.block_tables[:, : step.block_tables.shape[1]], step.block_tables),
            (own.context_lens, step.context_lens),
        )
        for to, new in pairs:
            to.copy_(new)
        own.runs = step.runs


def table_width(step: StepBatch) -> int:
    """Of block tables with room for some more blocks, so that few widths cover all contexts."""
    return 1 << (step.block_tables.shape[1] - 1).bit_length()


def only_decodes(step: StepBatch) -> bool:
    """One new token of each sequence, all of whose logits are wanted."""
    all_logits = step.logit_rows is None or step.logit_rows.shape[0] == step.num_rows
    return len(step.runs) == 1 and step.runs[0].decodes and all_logits
