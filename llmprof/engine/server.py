"""One pass of the engine over a trace: requests come, run in shared steps, and leave."""

import time
from collections import deque
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import torch

from llmprof.engine.engine import Engine
from llmprof.engine.kv_cache import KvCache
from llmprof.engine.probe import Probe
from llmprof.engine.rope import RotaryTable
from llmprof.engine.sampling import Sampler
from llmprof.engine.scheduled_step import ScheduledStep
from llmprof.engine.scheduler import Scheduler
from llmprof.engine.sequence import Sequence
from llmprof.engine.serving_round import ServingRound
from llmprof.engine.step_builder import Ids, StepBuilder


@dataclass(frozen=True, slots=True)
class Server:
    """Everything that a pass needs; a new one for each pass, around the same cache.

    A step ends when its tokens are on the host, as a server has to send them: the device is waited
    for once per step. The decision about the next step belongs to the end of the one before it;
    waiting for a request to arrive lies between steps, and so does describing a step to the probe.
    """

    engine: Engine
    cache: KvCache
    rotary: RotaryTable
    scheduler: Scheduler
    builder: StepBuilder
    notes: ServingRound
    sampler: Sampler
    ids: SequenceOf[Ids]
    """Per request, its prompt and room for its output, which is filled in."""
    sampled: torch.Tensor
    """[sequences at once, 1] int64 on the device."""

    @torch.inference_mode()
    def serve(self, probe: Probe) -> None:
        """Until every request has ended."""
        pending = deque(self.notes.sequences)
        step = self._wait(pending)
        while step is not None:
            probe.step_begin(self.notes.scheduled(step, self.scheduler))
            self._run(step, probe)
            following = self._schedule(pending)
            probe.step_end()
            step = following or self._wait(pending)
        self.notes.note_events(self.scheduler)

    def _wait(self, pending: deque[Sequence]) -> ScheduledStep | None:
        """The next step, after waiting for a request if need be; None when all have ended."""
        while True:
            step = self._schedule(pending)
            if step is not None or not pending:
                return step
            time.sleep(max(0.0, pending[0].request.arrival_s - self.notes.elapsed_s()))

    def _schedule(self, pending: deque[Sequence]) -> ScheduledStep | None:
        now_s = self.notes.elapsed_s()
        while pending and pending[0].request.arrival_s <= now_s:
            self.scheduler.submit(pending.popleft())
        return self.scheduler.schedule()

    def _run(self, step: ScheduledStep, probe: Probe) -> None:
        batch = self.builder.build(step)
        logits = self.engine.forward(batch, self.cache, self.rotary, probe)
        sampling = [item.sequence for item in step.items if item.samples]
        if sampling:
            self.engine.sample(logits, self.sampler, self.sampled[: len(sampling)], probe)
            self._take(sampling, self.sampled[: len(sampling), 0].tolist())
        self.scheduler.commit(step)

    def _take(self, sequences: list[Sequence], tokens: list[int]) -> None:
        for sequence, token in zip(sequences, tokens, strict=True):
            if not sequence.is_done:  # else a static batch keeps its place filled
                self.ids[sequence.request.index][sequence.num_tokens] = token
                self.notes.sampled(sequence)
