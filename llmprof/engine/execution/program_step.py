"""A decode step of the engine as a program of native calls, on a CPU."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from llmprof.engine.attention import (
    Attention,
    ChunkKernel,
    DecodeKernel,
    PrefillKernel,
    StepKernel,
)
from llmprof.engine.execution.decode_inputs import DecodeInputs
from llmprof.engine.execution.step_program import Recording, StepProgram, recording
from llmprof.engine.kv_cache import KvCache, KvPool
from llmprof.engine.model import Decoder
from llmprof.engine.probe import Probe
from llmprof.engine.step_batch import StepBatch

MOST_ROWS: Final = 16
"""Of a recorded step. Each number of rows has a recording of its own, which holds every activation of
every layer; with more rows the products hide what Python costs."""


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """See `replay_runner.RecordedStep`."""

    inputs: DecodeInputs
    program: StepProgram
    logits: torch.Tensor
    cache: KvCache
    attention: Attention

    def replay(self, probe: Probe) -> torch.Tensor:
        self.cache.begin_step(self.inputs.step)
        self.attention.begin_step(self.inputs.step)
        self.program.replay(probe)
        return self.logits


def record_program(
    decoder: Decoder,
    cache: KvCache,
    inputs: DecodeInputs,
    *,
    watched: Callable[[Recording], Probe] = lambda recorder: recorder,
) -> ProgramStep:
    """Run a step and write down what it did; `watched` may launch more between its groups.

    Attention by kernels of torch works on views whose shape follows the context: it is not recorded
    but called again in each replay, as it would be without a program.
    """
    attention, step = decoder.attention, inputs.step
    cache.begin_step(step)
    attention.begin_step(step)
    with recording() as recorder:
        if attention.decode_kernel is not None and isinstance(cache, KvPool):
            step = _at_longest(step, cache)
        else:
            live = _LiveAttention(attention, recorder)
            decoder = dataclasses.replace(decoder, attention=live)
        probe = watched(recorder)
        logits = decoder.through_layers(inputs.x, inputs.turn, step, cache, probe)
    return ProgramStep(inputs, recorder.program(), logits, cache, attention)


def _at_longest(step: StepBatch, cache: KvPool) -> StepBatch:
    """The same tensors, said to be as long as the cache: threads are chosen for every step to come."""
    longest = step.block_tables.shape[1] * cache.block_tokens
    (run,) = step.runs
    return dataclasses.replace(step, runs=(dataclasses.replace(run, cached_tokens=longest - 1),))


class _LiveAttention:
    """Attends in every replay, to whatever the step at hand holds."""

    decode_kernel: DecodeKernel | None = None
    prefill_kernel: PrefillKernel | None = None
    chunk_kernel: ChunkKernel | None = None
    step_kernel: StepKernel | None = None

    def __init__(self, attention: Attention, recorder: Recording) -> None:
        self._attention = attention
        self._recorder = recorder
        self.kernel = attention.kernel

    def begin_step(self, step: StepBatch) -> None:
        self._attention.begin_step(step)

    def before_replay(self, step: StepBatch, block_tokens: int) -> None:
        self._attention.before_replay(step, block_tokens)

    def __call__(
        self, query: torch.Tensor, cache: KvCache, layer: int, step: StepBatch
    ) -> torch.Tensor:
        with self._recorder.paused():
            out = self._attention(query, cache, layer, step)

        def attend_again() -> None:
            out.copy_(self._attention(query, cache, layer, step))

        self._recorder.repeat(attend_again)
        return out
