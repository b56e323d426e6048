"""Sequences of one length that start and end together; everything stays on the device."""

import torch

from llmprof.engine.kv_cache import BlockTables, KvCache, PoolPlan
from llmprof.engine.rope import RotaryTable
from llmprof.engine.step_batch import SequenceRun, StepBatch
from llmprof.schema.settings import KvLayout


class StaticBatch:
    """Every step brings the tokens that are known and not cached yet, then samples one more.

    The first step is the prefill, all later ones are decode steps. All room is reserved at the
    start, so the numbers of a decode step are those of the one before plus one: they are kept in
    one tensor, whose address stays the same from step to step.
    """

    def __init__(
        self,
        prompts: torch.Tensor,
        *,
        output_tokens: int,
        cache: KvCache,
        layout: KvLayout,
        rotary: RotaryTable,
        plan: PoolPlan,
        device: str,
    ) -> None:
        """Start before the prefill.

        Args:
            prompts: ids [batch, prompt_tokens].
            output_tokens: room for so many more.
            cache: of the layout, planned for this batch alone.
            layout: of the cache.
            rotary: reaching at least to the last position.
            plan: what the cache was made by.
            device: where the ids go.
        """
        self.batch, self.prompt_tokens = prompts.shape
        self.max_tokens = self.prompt_tokens + output_tokens
        self.tokens = torch.zeros((self.batch, self.max_tokens), dtype=torch.long, device=device)
        """Ids [batch, max_tokens]: prompts, then what was sampled, then room."""
        self.tokens[:, : self.prompt_tokens] = prompts.to(device)
        self.num_tokens = self.prompt_tokens
        """Known tokens of each sequence."""
        self.num_cached = 0
        """Those whose keys and values the cache holds; without a cache always none."""
        self.cache = cache
        self.rotary = rotary
        self._layout = layout
        self.num_blocks = plan.num_blocks
        self._block_tokens = plan.block_tokens
        self._tables = torch.zeros((self.batch, 1), dtype=torch.int32, device=device)
        if plan.num_blocks:
            self._tables = torch.from_numpy(self._reserve(plan).rows).to(device)
        # Rows: position, slot and context of each sequence's next token.
        self._next = torch.zeros((3, self.batch), dtype=torch.int32, device=device)
        self._next_position = -1

    def _reserve(self, plan: PoolPlan) -> BlockTables:
        """Prompts first, then token by token, as sequences that grow side by side get their blocks."""
        tables = BlockTables(
            num_seats=plan.num_seats,
            max_tokens=plan.max_tokens,
            num_blocks=plan.num_blocks,
            block_tokens=plan.block_tokens,
        )
        for length in (self.prompt_tokens, *range(self.prompt_tokens + 1, self.max_tokens + 1)):
            for seat in range(self.batch):
                reserved = tables.reserve(seat, length)
                assert reserved, "the plan has room for every sequence at its longest"
        return tables

    def restart(self, *, num_cached: int = 0) -> None:
        """Back to the prompts, the first tokens of which the cache may hold already.

        With every prompt token cached, one more token is taken as known: there must be an input.
        """
        self.num_cached = num_cached
        self.num_tokens = max(self.prompt_tokens, num_cached + 1)

    def next_step(self, *, all_logits: bool = False) -> StepBatch:
        """The rows of the next step; `all_logits` asks for the logits of every row."""
        new_tokens = self.num_tokens - self.num_cached
        run = self._run(0, self.batch, new_tokens)
        if run.decodes:
            return self._decode_step(run)
        ids = self.tokens[:, self.num_cached : self.num_tokens].flatten()
        positions = torch.arange(self.num_cached, self.num_tokens, device=ids.device)
        ends = torch.arange(1, self.batch + 1, device=ids.device) * new_tokens - 1
        return StepBatch(
            ids=ids,
            positions=positions.to(torch.int32).repeat(self.batch),
            slots=self._slots(positions).flatten(),
            block_tables=self._tables,
            context_lens=torch.full_like(self._next[2], self.num_tokens),
            runs=self._runs(run),
            logit_rows=None if all_logits else ends,
            host_context_lens=(self.num_tokens,) * self.batch,
        )

    def advance(self) -> None:
        """The step is over and the next token of each sequence is known."""
        if self.cache.appends:
            self.num_cached = self.num_tokens
        self.num_tokens += 1

    def _decode_step(self, run: SequenceRun) -> StepBatch:
        position = self.num_cached
        if position == self._next_position + 1 and position % self._block_tokens:
            self._next.add_(1)
        else:
            self._next[0].fill_(position)
            # made on the device: a copy from the host would wait for all that is queued there
            here = torch.full((1,), position, device=self._next.device)
            self._next[1].copy_(self._slots(here)[:, 0])
            self._next[2].fill_(position + 1)
        self._next_position = position
        positions, slots, context_lens = self._next.unbind(0)
        ids = self.tokens.select(1, position)
        return StepBatch(
            ids,
            positions,
            slots,
            self._tables,
            context_lens,
            (run,),
            host_context_lens=(position + 1,) * self.batch,
        )

    def _slots(self, positions: torch.Tensor) -> torch.Tensor:
        """[batch, positions] int32: where the cache takes the tokens at these positions."""
        if not self.cache.appends:
            return self._tables.expand(-1, positions.shape[0])
        blocks = self._tables[:, positions // self._block_tokens]
        return blocks * self._block_tokens + (positions % self._block_tokens).to(torch.int32)

    def _run(self, first: int, count: int, new_tokens: int) -> SequenceRun:
        return SequenceRun(
            first_row=first * new_tokens,
            first_sequence=first,
            num_sequences=count,
            new_tokens=new_tokens,
            cached_tokens=self.num_cached,
            same_context=True,
            first_block=first if self._layout is KvLayout.CONTIGUOUS else None,
        )

    def _runs(self, whole: SequenceRun) -> tuple[SequenceRun, ...]:
        """One for all sequences where the cache holds them side by side, else one for each."""
        if whole.first_block is not None or whole.num_sequences == 1:
            return (whole,)
        return tuple(self._run(index, 1, whole.new_tokens) for index in range(self.batch))
