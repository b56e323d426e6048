"""What a scheduler decides: which sequences a step works on, and how far each gets."""

from dataclasses import dataclass

from llmprof.engine.sequence import Sequence
from llmprof.schema.cost import Phase, SequenceShape, StepShape


@dataclass(slots=True)
class ScheduledSequence:
    """One sequence's part of a step. Not frozen: a frozen one takes three times as long to make."""

    sequence: Sequence
    cached_tokens: int
    new_tokens: int
    """Rows that the step computes for it, padding included."""
    padding_tokens: int = 0
    """The last so many of them are computed for nothing."""
    prefills: bool = False
    """It computes tokens that were known before its last step, a prompt or what was preempted."""
    samples: bool = True
    """Its last known token is among the new ones, so a next one is sampled."""

    @property
    def known_tokens(self) -> int:
        """New tokens without padding."""
        return self.new_tokens - self.padding_tokens

    @property
    def decodes(self) -> bool:
        """One new token after cached ones: the shape that attention has its own kernel for."""
        return self.new_tokens == 1 and self.cached_tokens > 0


@dataclass(frozen=True, slots=True)
class ScheduledStep:
    """At least one sequence; those that decode come first."""

    items: tuple[ScheduledSequence, ...]
    num_running: int
    """Sequences with a seat, whether the step works on them or not."""
    num_waiting: int

    @property
    def phase(self) -> Phase:
        prefills = sum(item.prefills for item in self.items)
        if prefills == len(self.items):
            return Phase.PREFILL
        return Phase.MIXED if prefills else Phase.DECODE

    @property
    def new_tokens(self) -> int:
        return sum(item.new_tokens for item in self.items)

    @property
    def padding_tokens(self) -> int:
        return sum(item.padding_tokens for item in self.items)

    def shape(self) -> StepShape:
        """For the observer; neighbours of one shape are one entry."""
        entries: list[list[int]] = []
        for item in self.items:
            if entries and entries[-1][1:] == [item.new_tokens, item.cached_tokens]:
                entries[-1][0] += 1
            else:
                entries.append([1, item.new_tokens, item.cached_tokens])
        return StepShape(
            phase=self.phase,
            sequences=tuple(
                SequenceShape(count=count, new_tokens=new, cached_tokens=cached)
                for count, new, cached in entries
            ),
            logit_rows=sum(item.samples for item in self.items),
        )
