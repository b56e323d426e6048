"""Static batching: sequences start together, padded to the longest, and end together."""

from llmprof.engine.scheduled_step import ScheduledSequence, ScheduledStep
from llmprof.engine.scheduler import Scheduler
from llmprof.engine.sequence import Sequence


class StaticScheduler(Scheduler):
    """One batch after the other, in the order of arrival.

    All prompts of a batch are prefilled in one step, padded to the longest. All sequences then
    decode until the last one is done; one that is done before repeats its last token, which is
    padding. Each reserves room for the longest prompt and the longest output of its batch.
    """

    def schedule(self) -> ScheduledStep | None:
        if not self.running:
            self._start_batch()
        if any(sequence.num_sampled for sequence in self.running) and not self._recomputes:
            return self._step(map(self._decode, self.running))
        longest = max((sequence.num_tokens for sequence in self.running), default=0)
        return self._step(self._whole(sequence, longest) for sequence in self.running)

    def commit(self, step: ScheduledStep) -> tuple[Sequence, ...]:
        done_before = {id(sequence) for sequence in self.running if sequence.is_done}
        for item in step.items:
            if id(item.sequence) not in done_before:
                self._count(item)
        done = tuple(
            sequence
            for sequence in self.running
            if sequence.is_done and id(sequence) not in done_before
        )
        if all(sequence.is_done for sequence in self.running):
            for sequence in tuple(self.running):
                self._unseat(sequence)
        return done

    def _start_batch(self) -> None:
        batch: list[Sequence] = []
        while self.waiting and self._seats:
            candidate = self.waiting[0]
            if not self._space.fits(len(batch) + 1, _longest([*batch, candidate])):
                break
            batch.append(self.waiting.popleft())
            self._seat(candidate)
        for sequence in batch:
            reserved = self._space.reserve(sequence, _longest(batch))
            assert reserved, "a batch takes only as many sequences as fit at their longest"

    @staticmethod
    def _whole(sequence: Sequence, longest: int) -> ScheduledSequence:
        """All known tokens, padded to the longest; all padding once it is done."""
        known = 0 if sequence.is_done else sequence.num_tokens
        return ScheduledSequence(
            sequence,
            cached_tokens=0,
            new_tokens=longest,
            padding_tokens=longest - known,
            prefills=not sequence.num_sampled,
        )

    @staticmethod
    def _decode(sequence: Sequence) -> ScheduledSequence:
        if not sequence.is_done:
            return ScheduledSequence(sequence, cached_tokens=sequence.num_cached, new_tokens=1)
        return ScheduledSequence(
            sequence, cached_tokens=sequence.num_cached - 1, new_tokens=1, padding_tokens=1
        )


def _longest(batch: list[Sequence]) -> int:
    """Tokens that a sequence of this batch may come to hold, padding included."""
    prompt = max(sequence.request.prompt_tokens for sequence in batch)
    return prompt + max(sequence.request.output_tokens for sequence in batch) - 1
