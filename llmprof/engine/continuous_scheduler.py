"""Continuous batching: sequences join and leave between steps (Yu et al. 2022, Orca)."""

from llmprof.engine.kv_space import KvSpace
from llmprof.engine.scheduled_step import ScheduledSequence, ScheduledStep
from llmprof.engine.scheduler import Scheduler, SchedulerEvent
from llmprof.engine.sequence import Sequence


class ContinuousScheduler(Scheduler):
    """Every running sequence decodes in every step; prompts fill what the step has left.

    A step has at most `max_step_tokens` new tokens. Decoding sequences come first, one token each,
    then prompts in pieces (chunked prefill, Agrawal et al. 2023), the oldest first, then whoever
    waits, in the order of arrival. A sequence starts when there is room for all of its known
    tokens. When a running one needs a block and none is free, the one that started last gives
    everything up, waits at the head of the queue, and is computed again (preemption by recompute,
    Kwon et al. 2023). The oldest always gets on, so every sequence ends.
    """

    def __init__(
        self,
        space: KvSpace,
        *,
        max_sequences: int,
        max_step_tokens: int,
        recomputes: bool = False,
    ) -> None:
        super().__init__(space, max_sequences=max_sequences, recomputes=recomputes)
        self._max_step_tokens = max_step_tokens
        self._left = 0
        """New tokens that the step being scheduled can still take."""

    def schedule(self) -> ScheduledStep | None:
        self._left = self._max_step_tokens
        decoding: list[Sequence] = []
        prefilling: list[Sequence] = []
        for sequence in self.running:
            (decoding if self._decodes(sequence) else prefilling).append(sequence)
        items, preempted = self._go_on(decoding)
        items += [item for one in prefilling if one.seat is not None for item in self._piece(one)]
        if not preempted:
            items += self._newcomers()
        return self._step(items)

    def commit(self, step: ScheduledStep) -> tuple[Sequence, ...]:
        for item in step.items:
            self._count(item)
        done = tuple(item.sequence for item in step.items if item.sequence.is_done)
        for sequence in done:
            self._unseat(sequence)
        return done

    def _decodes(self, sequence: Sequence) -> bool:
        """Its last known token was sampled, and it has nothing else to catch up with."""
        return sequence.num_sampled > 0 and (self._recomputes or sequence.num_pending == 1)

    def _never_fits(self, sequence: Sequence) -> str | None:
        longest = sequence.request.max_cached_tokens
        if self._recomputes and longest > self._max_step_tokens:
            return (
                f"its {longest} tokens are computed at once without a KV cache, and "
                f"batching.max_step_tokens is {self._max_step_tokens}"
            )
        return super()._never_fits(sequence)

    def _go_on(self, sequences: list[Sequence]) -> tuple[list[ScheduledSequence], bool]:
        """Those that go on, oldest first; and whether any sequence had to make room."""
        items: list[ScheduledSequence] = []
        preempted = False
        for sequence in sequences:
            if sequence.seat is None:  # made room for an older one
                continue
            if not self._space.reserve(sequence, sequence.num_tokens):
                self._make_room(sequence)
                preempted = True
            if sequence.seat is not None:
                items += self._piece(sequence, prefills=False)
        return items, preempted

    def _make_room(self, sequence: Sequence) -> None:
        """Preempt the last ones, at worst the sequence itself, until its next token has room."""
        while sequence.seat is not None and not self._space.reserve(sequence, sequence.num_tokens):
            self._preempt(self.running[-1])

    def _preempt(self, sequence: Sequence) -> None:
        held = sequence.num_cached
        self._unseat(sequence)
        sequence.num_cached = 0
        sequence.preemptions += 1
        self.waiting.appendleft(sequence)
        message = f"the KV cache is full: {held} cached tokens are dropped and computed again later"
        self.events.append(SchedulerEvent("preempted", sequence, message))

    def _piece(self, sequence: Sequence, *, prefills: bool = True) -> list[ScheduledSequence]:
        """As much of a sequence as the step can still take; all or nothing without a cache."""
        pending = sequence.num_pending
        new = min(pending, self._left)
        if not new or (self._recomputes and new < pending):
            return []
        self._left -= new
        return [
            ScheduledSequence(
                sequence,
                cached_tokens=sequence.num_cached,
                new_tokens=new,
                prefills=prefills,
                samples=new == pending,
            )
        ]

    def _newcomers(self) -> list[ScheduledSequence]:
        """From the head of the queue, until one does not fit: nobody is overtaken."""
        items: list[ScheduledSequence] = []
        while self.waiting and self._seats and self._left:
            sequence = self.waiting[0]
            if not self._space.admits(sequence, len(self.running)):
                break
            if self._recomputes and sequence.num_tokens > self._left:
                break
            self._seat(self.waiting.popleft())
            reserved = self._space.reserve(sequence, sequence.num_tokens)
            assert reserved, "a sequence is admitted only if its tokens have room"
            items += self._piece(sequence)
        return items
