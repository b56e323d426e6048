"""Runs decode steps by replaying what was recorded, and everything else op by op."""

from collections.abc import Callable, Hashable
from typing import Protocol

import torch

from llmprof.costs.row_buckets import padded_rows
from llmprof.engine.execution.compilations import Compilations
from llmprof.engine.execution.decode_inputs import DecodeInputs, only_decodes, table_width
from llmprof.engine.kv_cache import KvCache, KvPool
from llmprof.engine.model import Decoder
from llmprof.engine.probe import Probe, wants_ops
from llmprof.engine.rope import RotaryTable
from llmprof.engine.step_batch import StepBatch
from llmprof.schema.cost import OpGroup


class RecordedStep(Protocol):
    """A decode step from embedded tokens to logits, for one shape."""

    @property
    def inputs(self) -> DecodeInputs: ...

    def replay(self, probe: Probe) -> torch.Tensor:
        """Run it on the numbers in its inputs; the logits are valid until the next replay."""


Record = Callable[[Decoder, KvCache, DecodeInputs], RecordedStep]
"""Records a step; running it on the way is allowed, since it writes the same numbers again."""
ShapeOf = Callable[[StepBatch], Hashable]
"""What steps that share a recording have in common, beside their rows and the width of tables."""


class ReplayRunner:
    """Records the first decode step of each shape, outside of any group, and replays it from then on.

    Steps of other kinds (prefill, mixed) run as they are, and so does every step while something
    watches torch's operators: it sees the same kernels, which a replay would hide. A probe that
    wants ops is told about them by the replay itself.
    """

    def __init__(
        self,
        name: str,
        record: Record,
        shape_of: ShapeOf,
        *,
        most_rows: int | None = None,
        row_buckets: tuple[int, ...] = (),
        whole_tables: bool = False,
        compilations: Compilations | None = None,
    ) -> None:
        """How to record, and what.

        Args:
            name: how steps are started.
            record: makes a recording.
            shape_of: what steps that share one have in common, beside their rows.
            most_rows: larger steps run as they are, their arithmetic hides what starting them costs.
            row_buckets: rows of recordings; a step takes the next larger one, where its cache has a
                scratch block for the rows that are missing. Empty: as many as the step has.
            whole_tables: block tables have room for the longest sequence from the first step on, where
                a recording for every power of two would cost too much.
            compilations: told by what records, where that is torch.compile.
        """
        self.name = name
        self.row_buckets = row_buckets
        self.compilations = compilations
        self._most_rows = most_rows
        self._whole_tables = whole_tables
        self._record = record
        self._shape_of = shape_of
        self._recorded: dict[Hashable, RecordedStep] = {}
        self._recorded_for: tuple[Decoder, KvCache] | None = None

    def forward(
        self,
        decoder: Decoder,
        step: StepBatch,
        cache: KvCache,
        rotary: RotaryTable,
        probe: Probe,
    ) -> torch.Tensor:
        watched = torch._C._len_torch_dispatch_stack() and not wants_ops(probe)
        if watched or not self._can_replay(step):
            return decoder.forward(step, cache, rotary, probe)
        self._forget_others(decoder, cache)
        probe.group_begin(OpGroup.EMBEDDING)
        x = decoder.embed(step.ids)
        probe.group_end()
        turn = rotary.at(step.positions)
        threads = torch.get_num_threads()
        rows, scratch = self._padded(step, cache)
        width = self._width(step, cache, rotary)
        shape = (rows, width, threads, self._shape_of(step))
        recorded = self._recorded.get(shape)
        if recorded is None:
            inputs = DecodeInputs.like(x, turn, step, rows=rows, width=width, scratch=scratch)
            recorded = self._record(decoder, cache, inputs)
            self._recorded[shape] = recorded
        recorded.inputs.copy_(x, turn, step)
        return recorded.replay(probe)[: step.num_rows]

    def _padded(self, step: StepBatch, cache: KvCache) -> tuple[int, tuple[int, int]]:
        """Rows of the recording for a step, and slot and block that its padding writes to."""
        views = step.runs[0].first_block is not None
        if views or not isinstance(cache, KvPool) or cache.scratch_block is None:
            return step.num_rows, (0, 0)
        scratch = cache.scratch_block * cache.block_tokens, cache.scratch_block
        return padded_rows(step.num_rows, self.row_buckets), scratch

    def _width(self, step: StepBatch, cache: KvCache, rotary: RotaryTable) -> int:
        """Of block tables, in blocks. The rotary table reaches as far as the longest sequence."""
        if not self._whole_tables or not isinstance(cache, KvPool):
            return table_width(step)
        return -(-rotary.tables.shape[1] // cache.block_tokens)

    def _can_replay(self, step: StepBatch) -> bool:
        small_enough = self._most_rows is None or step.num_rows <= self._most_rows
        return small_enough and only_decodes(step)

    def _forget_others(self, decoder: Decoder, cache: KvCache) -> None:
        """A recording belongs to the weights and the cache whose addresses are in it."""
        if self._recorded_for is not None:
            own_decoder, own_cache = self._recorded_for
            if own_decoder is decoder and own_cache is cache:
                return
        self._recorded.clear()
        self._recorded_for = decoder, cache
