"""Every request ends, in fair order, within the budgets, for both policies and any cache."""

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmprof.engine.continuous_scheduler import ContinuousScheduler
from llmprof.engine.kv_cache import BlockTables
from llmprof.engine.kv_space import BlockSpace, KvSpace, NoSpace
from llmprof.engine.request_trace import Request
from llmprof.engine.scheduled_step import ScheduledStep
from llmprof.engine.scheduler import Scheduler
from llmprof.engine.sequence import Sequence
from llmprof.engine.static_scheduler import StaticScheduler
from llmprof.schema.cost import Phase

MAX_PROMPT, MAX_OUTPUT = 40, 12
LONGEST = MAX_PROMPT + MAX_OUTPUT - 1

lengths = st.tuples(st.integers(1, MAX_PROMPT), st.integers(1, MAX_OUTPUT))
traces = st.lists(lengths, min_size=1, max_size=12)
seats = st.integers(1, 5)


def sequences_of(trace: list[tuple[int, int]]) -> list[Sequence]:
    return [Sequence.of(Request(i, 0.0, *lengths)) for i, lengths in enumerate(trace)]


def block_tables(num_seats: int, num_blocks: int, block_tokens: int = 4) -> BlockTables:
    return BlockTables(
        num_seats=num_seats, max_tokens=LONGEST, num_blocks=num_blocks, block_tokens=block_tokens
    )


@dataclass
class Played:
    """A scheduler run to the end by a model that samples whatever it is asked to."""

    scheduler: Scheduler
    sequences: list[Sequence]
    steps: list[ScheduledStep] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    first_seated: list[int] = field(default_factory=list)
    computed: dict[int, int] = field(default_factory=dict)
    """Per request, rows computed, padding left out."""

    def play(self, arrivals_per_step: int = 99) -> "Played":
        pending = deque(self.sequences)
        while pending or self.scheduler.has_work:
            for _ in range(min(arrivals_per_step, len(pending))):
                self.scheduler.submit(pending.popleft())
            step = self.scheduler.schedule()
            if step is not None:
                self._run(step)
            assert len(self.steps) < 5000, "it does not end"
        return self

    def _run(self, step: ScheduledStep) -> None:
        self.steps.append(step)
        seated = [one.seat for one in self.scheduler.running]
        assert None not in seated
        assert len(set(seated)) == len(seated)
        for item in step.items:
            index = item.sequence.request.index
            assert item.cached_tokens + item.known_tokens <= item.sequence.num_tokens
            self.computed[index] = self.computed.get(index, 0) + item.known_tokens
            if index not in self.first_seated:
                self.first_seated.append(index)
        self.ended += [one.request.index for one in self.scheduler.commit(step)]


def check_all_ended(played: Played) -> None:
    assert sorted(played.ended) == [one.request.index for one in played.sequences]
    for sequence in played.sequences:
        assert sequence.num_sampled == sequence.request.output_tokens
        assert sequence.seat is None


@settings(max_examples=150, deadline=None)
@given(
    trace=traces,
    num_seats=seats,
    spare_blocks=st.integers(0, 30),
    budget=st.integers(5, 64),
    arrivals=st.integers(1, 4),
)
def test_continuous_batching_ends_fairly_within_its_budgets(
    trace: list[tuple[int, int]], num_seats: int, spare_blocks: int, budget: int, arrivals: int
) -> None:
    tables = block_tables(num_seats, -(-LONGEST // 4) + spare_blocks)
    scheduler = ContinuousScheduler(
        BlockSpace(tables), max_sequences=num_seats, max_step_tokens=budget
    )
    played = Played(scheduler, sequences_of(trace)).play(arrivals)
    check_all_ended(played)
    assert tables.num_held == 0
    assert played.first_seated == sorted(played.first_seated)
    for step in played.steps:
        assert step.new_tokens <= budget
        assert step.padding_tokens == 0
        assert len({id(item.sequence) for item in step.items}) == len(step.items) <= num_seats
    for sequence in played.sequences:
        once = sequence.request.max_cached_tokens
        computed = played.computed[sequence.request.index]
        assert computed == once if not sequence.preemptions else computed >= once


@settings(max_examples=80, deadline=None)
@given(trace=traces, num_seats=seats, spare_blocks=st.integers(0, 6))
def test_the_oldest_sequence_goes_on_in_every_step(
    trace: list[tuple[int, int]], num_seats: int, spare_blocks: int
) -> None:
    """Who has run longest is never held up, so no one waits forever behind a full cache."""
    tables = block_tables(num_seats, -(-LONGEST // 4) + spare_blocks)
    scheduler = ContinuousScheduler(BlockSpace(tables), max_sequences=num_seats, max_step_tokens=64)
    played = Played(scheduler, sequences_of(trace))
    for sequence in played.sequences:
        scheduler.submit(sequence)
    while (step := scheduler.schedule()) is not None:
        oldest = min(scheduler.running, key=lambda one: one.request.index)
        assert oldest in [item.sequence for item in step.items]
        assert all(
            oldest.request.index < event.sequence.request.index for event in scheduler.events
        )
        scheduler.events.clear()
        scheduler.commit(step)


@settings(max_examples=60, deadline=None)
@given(trace=traces, num_seats=seats, budget=st.integers(LONGEST, 120))
def test_without_a_cache_every_step_takes_whole_sequences(
    trace: list[tuple[int, int]], num_seats: int, budget: int
) -> None:
    scheduler = ContinuousScheduler(
        NoSpace(), max_sequences=num_seats, max_step_tokens=budget, recomputes=True
    )
    played = Played(scheduler, sequences_of(trace)).play()
    check_all_ended(played)
    for step in played.steps:
        assert step.new_tokens <= budget
        assert all(item.samples and item.cached_tokens == 0 for item in step.items)
    for one in played.sequences:
        prompt, output = one.request.prompt_tokens, one.request.output_tokens
        assert played.computed[one.request.index] == sum(range(prompt, prompt + output))


@settings(max_examples=80, deadline=None)
@given(trace=traces, num_seats=seats, cached=st.booleans(), spare_blocks=st.integers(0, 40))
def test_static_batches_start_and_end_together(
    trace: list[tuple[int, int]], num_seats: int, cached: bool, spare_blocks: int
) -> None:
    tables = block_tables(num_seats, -(-LONGEST // 4) + spare_blocks)
    space: KvSpace = BlockSpace(tables) if cached else NoSpace()
    scheduler = StaticScheduler(space, max_sequences=num_seats, recomputes=not cached)
    played = Played(scheduler, sequences_of(trace)).play()
    check_all_ended(played)
    assert tables.num_held == 0
    batch: tuple[int, ...] = ()
    for step in played.steps:
        members = tuple(sorted(item.sequence.request.index for item in step.items))
        if step.phase is Phase.PREFILL:
            batch = members
        assert members == batch
        assert len({item.new_tokens for item in step.items}) == 1
    prefills = [step for step in played.steps if step.phase is Phase.PREFILL]
    first_of_batches = [
        trace[item.sequence.request.index] for step in prefills for item in step.items
    ]
    assert sorted(first_of_batches) == sorted(trace)
    # a batch takes one step per token of its longest output
    outputs = [max(item.sequence.request.output_tokens for item in step.items) for step in prefills]
    assert len(played.steps) == sum(outputs)


@pytest.mark.parametrize("policy", ["static", "continuous"])
def test_what_can_never_fit_is_rejected_and_the_others_run(policy: str) -> None:
    tables = block_tables(2, 4)
    scheduler: Scheduler = (
        StaticScheduler(BlockSpace(tables), max_sequences=2, recomputes=False)
        if policy == "static"
        else ContinuousScheduler(BlockSpace(tables), max_sequences=2, max_step_tokens=16)
    )
    fits, too_long = sequences_of([(10, 7), (10, 8)])
    assert scheduler.submit(fits)
    assert not scheduler.submit(too_long)
    (event,) = scheduler.events
    assert (event.kind, event.sequence) == ("rejected", too_long)
    assert "17 tokens" in event.message
    while (step := scheduler.schedule()) is not None:
        scheduler.commit(step)
    assert fits.is_done
    assert not too_long.num_sampled
