"""What happened to the requests of one round, noted as it goes on."""

import time
from dataclasses import dataclass, field
from typing import Final, Literal

from llmprof.engine.kv_cache import BlockTables
from llmprof.engine.scheduled_step import ScheduledStep
from llmprof.engine.scheduler import Scheduler
from llmprof.engine.sequence import Sequence
from llmprof.engine.workload import RoundDetails, StepUse
from llmprof.schema.cost import Phase, StepShape
from llmprof.schema.run import BatchUse, KvUse, RequestSample, ServingEvent

_NS_PER_S: Final = 1_000_000_000


@dataclass(slots=True)
class _Progress:
    queue_s: float | None = None
    first_step: int | None = None
    token_steps: list[int] = field(default_factory=list)
    rejected: str | None = None


class ServingRound:
    """Sequences and notes of one round; its clock starts when it is made."""

    def __init__(
        self, sequences: tuple[Sequence, ...], tables: BlockTables, *, bytes_per_token: float
    ) -> None:
        self.sequences = sequences
        self._tables = tables
        self._bytes_per_token = bytes_per_token
        self._progress = [_Progress() for _ in sequences]
        self._steps: list[StepUse] = []
        self._events: list[ServingEvent] = []
        self.shapes: dict[Phase, StepShape] = {}
        """Some step of each phase that occurred."""
        self._start_ns = time.perf_counter_ns()

    def elapsed_s(self) -> float:
        return (time.perf_counter_ns() - self._start_ns) / _NS_PER_S

    def scheduled(self, step: ScheduledStep, scheduler: Scheduler) -> StepShape:
        """Note a step before it runs, with what the scheduler had to do for it."""
        now_s, index = self.elapsed_s(), len(self._steps)
        self.note_events(scheduler)
        for item in step.items:
            progress = self._progress[item.sequence.request.index]
            if progress.first_step is None:
                progress.first_step = index
                progress.queue_s = max(0.0, now_s - item.sequence.request.arrival_s)
        working = sum(item.known_tokens > 0 for item in step.items)
        batch = BatchUse(
            running=step.num_running,
            waiting=step.num_waiting,
            slots_idle=scheduler.max_sequences - working,
            padding_tokens=step.padding_tokens,
        )
        self._steps.append(StepUse(self._kv_use(step, scheduler), batch))
        shape = step.shape()
        self.shapes[shape.phase] = shape
        return shape

    def note_events(self, scheduler: Scheduler) -> None:
        for event in scheduler.events:
            request = event.sequence.request.index
            if event.kind == "rejected":
                self._progress[request].rejected = event.message
            self._events.append(
                ServingEvent(
                    step=len(self._steps),
                    kind=event.kind,
                    request=request,
                    message=event.message,
                )
            )
        scheduler.events.clear()

    def sampled(self, sequence: Sequence) -> None:
        """The last noted step gave a sequence its next token."""
        self._progress[sequence.request.index].token_steps.append(len(self._steps) - 1)

    def details(self) -> RoundDetails:
        return RoundDetails(
            steps=tuple(self._steps),
            requests=tuple(map(self._request, self.sequences)),
            events=tuple(self._events),
        )

    def _kv_use(self, step: ScheduledStep, scheduler: Scheduler) -> KvUse | None:
        if not self._tables.num_blocks:
            return None
        added = sum(item.known_tokens for item in step.items)
        held = sum(sequence.num_cached for sequence in scheduler.running)
        block_bytes = self._tables.block_tokens * self._bytes_per_token
        return KvUse(
            reserved_bytes=round(self._tables.num_held * block_bytes),
            used_bytes=round((held + added) * self._bytes_per_token),
            blocks_held=self._tables.num_held,
            blocks_total=self._tables.num_blocks,
        )

    def _request(self, sequence: Sequence) -> RequestSample:
        request, progress = sequence.request, self._progress[sequence.request.index]
        outcome: Literal["finished", "rejected", "unfinished"] = "unfinished"
        if progress.rejected is not None:
            outcome = "rejected"
        elif sequence.is_done:
            outcome = "finished"
        return RequestSample(
            index=request.index,
            arrival_s=request.arrival_s,
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.output_tokens,
            queue_s=progress.queue_s,
            first_step=progress.first_step,
            token_steps=tuple(progress.token_steps),
            preemptions=sequence.preemptions,
            outcome=outcome,
            reason=progress.rejected,
        )
