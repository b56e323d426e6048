"""From a scheduled step to the tensors of one forward pass, in one copy to the device."""

from collections.abc import Sequence as SequenceOf

import numpy as np
import numpy.typing as npt
import torch

from llmprof.engine.kv_cache import BlockTables
from llmprof.engine.scheduled_step import ScheduledSequence, ScheduledStep
from llmprof.engine.step_batch import SequenceRun, StepBatch

Ids = npt.NDArray[np.int32]


class StepBuilder:
    """Knows the tokens of every request and the blocks of every seat."""

    def __init__(
        self, ids: SequenceOf[Ids], tables: BlockTables, *, in_one_block: bool, device: str
    ) -> None:
        """Keep what steps are made of.

        Args:
            ids: per request, its prompt and room for its output; the caller fills it in.
            tables: blocks of each seat, as the scheduler fills them.
            in_one_block: each sequence has a single block, so a part of a prompt can read what is
                cached as a view.
            device: of the tensors.
        """
        self._ids = ids
        self._tables = tables
        self._in_one_block = in_one_block
        self._device = device
        longest = max(len(one) for one in ids)
        self._counting = np.arange(longest, dtype=np.int32)

    def build(self, step: ScheduledStep) -> StepBatch:
        items, rows = step.items, step.new_tokens
        contexts = [item.cached_tokens + item.new_tokens for item in items]
        samples = sum([item.samples for item in items])
        width = self._tables.blocks_for(max(contexts))
        sizes = [rows, rows, rows, len(items), samples, len(items) * width]
        packed = np.empty(sum(sizes), dtype=np.int32)
        ids, positions, slots, context_lens, logit_rows, tables = np.split(
            packed, np.cumsum(sizes[:-1])
        )
        context_lens[:] = contexts
        decodes = sum([item.decodes for item in items])
        self._fill_decodes(items[:decodes], ids, positions, logit_rows)
        self._fill_pieces(items[decodes:], decodes, ids, positions, logit_rows)
        self._fill_blocks(items, positions, slots, tables.reshape(len(items), width))
        on_device = torch.split(torch.from_numpy(packed).to(self._device), sizes)
        return StepBatch(
            ids=on_device[0].long(),
            positions=on_device[1],
            slots=on_device[2],
            context_lens=on_device[3],
            logit_rows=on_device[4] if samples < rows else None,
            block_tables=on_device[5].view(len(items), width),
            runs=self._runs(items, decodes),
            host_context_lens=tuple(contexts),
        )

    def _fill_decodes(
        self, items: SequenceOf[ScheduledSequence], ids: Ids, positions: Ids, logit_rows: Ids
    ) -> None:
        """One row each, from the first row on; a single token of a longer prompt does not sample."""
        count = len(items)
        positions[:count] = [item.cached_tokens for item in items]
        ids[:count] = [self._ids[item.sequence.request.index][item.cached_tokens] for item in items]
        sampling = [row for row, item in enumerate(items) if item.samples]
        logit_rows[: len(sampling)] = sampling

    def _fill_pieces(
        self,
        items: SequenceOf[ScheduledSequence],
        row: int,
        ids: Ids,
        positions: Ids,
        logit_rows: Ids,
    ) -> None:
        """Several rows each, from `row` on."""
        sampled = len(logit_rows) - sum([item.samples for item in items])
        for item in items:
            first, known = item.cached_tokens, item.known_tokens
            known_ids = self._ids[item.sequence.request.index]
            end = row + item.new_tokens
            ids[row : row + known] = known_ids[first : first + known]
            ids[row + known : end] = 0
            positions[row:end] = self._counting[first : first + item.new_tokens]
            if item.samples:
                logit_rows[sampled] = row + max(known, 1) - 1
                sampled += 1
            row = end

    def _fill_blocks(
        self, items: SequenceOf[ScheduledSequence], positions: Ids, slots: Ids, tables: Ids
    ) -> None:
        seats = np.array([item.sequence.seat for item in items])
        of_step = self._tables.rows[seats]
        tables[:] = of_step[:, : tables.shape[1]]
        block_tokens = self._tables.block_tokens
        counts = [item.new_tokens for item in items]
        sequence_of_row = np.repeat(np.arange(len(items)), counts)
        which, offsets = np.divmod(positions, block_tokens)
        slots[:] = of_step[sequence_of_row, which] * block_tokens + offsets

    def _runs(self, items: SequenceOf[ScheduledSequence], decodes: int) -> tuple[SequenceRun, ...]:
        """One for all that decode, who come first; one for each other."""
        runs = []
        if decodes:
            cached = [item.cached_tokens for item in items[:decodes]]
            same = min(cached) == max(cached)
            runs.append(SequenceRun(0, 0, decodes, 1, max(cached), same_context=same))
        row = decodes
        for index, item in enumerate(items[decodes:], start=decodes):
            runs.append(
                SequenceRun(
                    first_row=row,
                    first_sequence=index,
                    num_sequences=1,
                    new_tokens=item.new_tokens,
                    cached_tokens=item.cached_tokens,
                    same_context=True,
                    first_block=self._only_block(item),
                )
            )
            row += item.new_tokens
        return tuple(runs)

    def _only_block(self, item: ScheduledSequence) -> int | None:
        seat = item.sequence.seat
        if not self._in_one_block or seat is None:
            return None
        return int(self._tables.rows[seat, 0])
