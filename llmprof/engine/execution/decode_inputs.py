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

    scratch_slot: int = 0
    """Where the cache takes keys and values of padding: the first slot of a block of nobody."""
    scratch_block: int = 0

    @classmethod
    def like(
        cls,
        x: torch.Tensor,
        turn: Turn,
        step: StepBatch,
        *,
        rows: int | None = None,
        width: int = 0,
        scratch: tuple[int, int] = (0, 0),
    ) -> "DecodeInputs":
        """For steps of one shape, holding the numbers of this one.

        `rows`: so many where a step has fewer, which are padding; `scratch` is the slot that they
        write to, and its block. `width`: of block tables; 0 for `table_width`.
        """
        rows = rows or step.num_rows
        own_step = dataclasses.replace(
            step,
            ids=step.ids.new_zeros(rows),
            positions=step.positions.new_zeros(rows),
            slots=step.slots.new_empty(rows),
            block_tables=step.block_tables.new_zeros(rows, width or table_width(step)),
            context_lens=step.context_lens.new_empty(rows),
            logit_rows=None,
        )
        own_turn = tuple(table.new_empty((rows, *table.shape[1:])) for table in turn)
        inputs = cls(x.new_empty((rows, *x.shape[1:])), own_turn, own_step, *scratch)
        inputs.copy_(x, turn, step)
        return inputs

    def copy_(self, x: torch.Tensor, turn: Turn, step: StepBatch) -> None:
        """Take over the numbers of a step of the same shape, or of one with fewer rows.

        Rows that are left over forget where they pointed: else they would write to blocks that
        belong to another sequence by now.
        """
        own, rows = self.step, step.num_rows
        floats = [self.x[:rows], *(table[:rows] for table in self.turn)]
        _copy(floats, [x, *turn])
        _copy([own.slots[:rows], own.context_lens[:rows]], [step.slots, step.context_lens])
        own.block_tables[:rows, : step.block_tables.shape[1]].copy_(step.block_tables)
        if rows < own.slots.shape[0]:
            self._pad(rows)
        own.runs = step.runs
        own.host_context_lens = step.host_context_lens
        if step.host_context_lens is not None:
            own.host_context_lens = (*step.host_context_lens, *(1,) * (own.num_rows - rows))

    def _pad(self, rows: int) -> None:
        """The rows from `rows` on: sequences of one token, in the scratch block."""
        own = self.step
        for tensor in (self.x, *self.turn):
            tensor[rows:].zero_()
        own.slots[rows:].fill_(self.scratch_slot)
        own.block_tables[rows:].fill_(self.scratch_block)
        own.context_lens[rows:].fill_(1)


def _copy(to: list[torch.Tensor], new: list[torch.Tensor]) -> None:
    """Of tensors of one dtype, each in one piece: one kernel on a GPU, which a CPU would take apart."""
    if to[0].is_cpu:
        for target, source in zip(to, new, strict=True):
            target.copy_(source)
    else:
        torch._foreach_copy_(to, new)


def table_width(step: StepBatch) -> int:
    """Of block tables with room for some more blocks, so that few widths cover all contexts."""
    return 1 << (step.block_tables.shape[1] - 1).bit_length()


def only_decodes(step: StepBatch) -> bool:
    """One new token of each sequence, all of whose logits are wanted."""
    all_logits = step.logit_rows is None or step.logit_rows.shape[0] == step.num_rows
    return len(step.runs) == 1 and step.runs[0].decodes and all_logits
