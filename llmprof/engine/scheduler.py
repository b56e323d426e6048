"""Who runs in the next step. Pure bookkeeping: no tensor, no clock, no device."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from llmprof.engine.kv_space import KvSpace
from llmprof.engine.scheduled_step import ScheduledSequence, ScheduledStep
from llmprof.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class SchedulerEvent:
    """Something that happened before the step that is scheduled next."""

    kind: Literal["preempted", "rejected"]
    sequence: Sequence
    message: str


class Scheduler(ABC):
    """Sequences wait in the order of their arrival, run in a seat, and leave when they are done.

    Call `submit` for each request that has arrived, then `schedule` and `commit` in turn until
    nothing waits and nothing runs.
    """

    def __init__(self, space: KvSpace, *, max_sequences: int, recomputes: bool) -> None:
        """`recomputes`: there is no cache, every step takes all tokens of a sequence again."""
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        """In the order in which they got their seats."""
        self.events: list[SchedulerEvent] = []
        """In order; the caller clears what it has read."""
        self._space = space
        self._recomputes = recomputes
        self.max_sequences = max_sequences
        self._seats = list(range(max_sequences - 1, -1, -1))

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    def submit(self, sequence: Sequence) -> bool:
        """Put a sequence last in the queue; false, with an event, if it could never run."""
        problem = self._never_fits(sequence)
        if problem is not None:
            self.events.append(SchedulerEvent("rejected", sequence, problem))
            return False
        self.waiting.append(sequence)
        return True

    @abstractmethod
    def schedule(self) -> ScheduledStep | None:
        """The next step; None if nothing waits or runs."""

    @abstractmethod
    def commit(self, step: ScheduledStep) -> tuple[Sequence, ...]:
        """The step has run: count its tokens, and let go of the sequences that are done."""

    def _never_fits(self, sequence: Sequence) -> str | None:
        """Why a sequence could not even run alone; None if it could."""
        longest = sequence.request.max_cached_tokens
        if self._space.fits(1, longest):
            return None
        return f"its {longest} tokens are more than the whole KV cache holds"

    def _step(self, items: Iterable[ScheduledSequence]) -> ScheduledStep | None:
        ordered = tuple(sorted(items, key=_after_decodes))
        if not ordered:
            return None
        return ScheduledStep(ordered, num_running=len(self.running), num_waiting=len(self.waiting))

    def _seat(self, sequence: Sequence) -> None:
        sequence.seat = self._seats.pop()
        self.running.append(sequence)

    def _unseat(self, sequence: Sequence) -> None:
        assert sequence.seat is not None, "only a running sequence has a seat to leave"
        self._space.release(sequence)
        self._seats.append(sequence.seat)
        sequence.seat = None
        self.running.remove(sequence)

    def _count(self, item: ScheduledSequence) -> None:
        """What a sequence gained in a step."""
        if not self._recomputes:
            item.sequence.num_cached = item.cached_tokens + item.known_tokens
        if item.samples:
            item.sequence.num_tokens += 1


def _after_decodes(item: ScheduledSequence) -> bool:
    """A sort by this keeps the order among those that decode, and among the others."""
    return item.new_tokens != 1 or not item.cached_tokens
