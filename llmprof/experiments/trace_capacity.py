"""What one trace and one budget of KV memory allow: who runs at once, what is wasted, how many steps.

Played with the engine's own scheduler and block tables, and no model: a step is a step, whatever it
takes. Beside the paged cache stand three that reserve a sequence's room at its start.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from llmprof.engine.continuous_scheduler import ContinuousScheduler
from llmprof.engine.kv_cache import BlockTables
from llmprof.engine.kv_space import BlockSpace, KvSpace
from llmprof.engine.request_trace import Request, draw_lengths
from llmprof.engine.scheduled_step import ScheduledStep
from llmprof.engine.scheduler import Scheduler
from llmprof.engine.sequence import Sequence as RunningSequence
from llmprof.engine.static_scheduler import StaticScheduler
from llmprof.schema.settings import LengthDistribution


@dataclass(frozen=True, slots=True)
class CapacityRow:
    """How one way of reserving memory served the trace."""

    name: str
    peak_running: int
    mean_running: float
    """Over the steps in which someone waited for room: afterwards memory no longer decides."""
    mean_wasted_tokens: float
    """Over the same steps: room that was reserved and held no token."""
    wasted_fraction: float
    """Of the reserved room."""
    num_steps: int
    num_preemptions: int


@dataclass(frozen=True, slots=True)
class BatchingGain:
    """Steps of one trace under static and continuous batching, and the fewest there could be."""

    static_steps: int
    continuous_steps: int
    least_steps: int
    """In any order: all output tokens in full batches, or the longest output alone."""
    least_steps_in_order: int
    """For requests that start in the order of arrival, each in the first place that is free: the
    lengths of outputs are not known beforehand, so a long one may come last."""

    @property
    def gain(self) -> float:
        return self.static_steps / self.continuous_steps

    @property
    def largest_gain(self) -> float:
        return self.static_steps / self.least_steps

    @property
    def largest_gain_in_order(self) -> float:
        return self.static_steps / self.least_steps_in_order


class MeasuredSpace(KvSpace, Protocol):
    """A space that tells how much of it is reserved."""

    @property
    def reserved_tokens(self) -> int: ...


class ReservedSpace:
    """Every sequence takes its room when it starts and keeps it: no blocks, no growth."""

    def __init__(self, budget_tokens: int, room_of: Callable[[Request], int]) -> None:
        self._budget = budget_tokens
        self._room_of = room_of
        self._reserved: dict[int, int] = {}

    @property
    def reserved_tokens(self) -> int:
        return sum(self._reserved.values())

    def fits(self, count: int, num_tokens: int) -> bool:
        return count * num_tokens <= self._budget

    def admits(self, sequence: RunningSequence, running: int) -> bool:
        return self.reserved_tokens + self._room_of(sequence.request) <= self._budget

    def reserve(self, sequence: RunningSequence, num_tokens: int) -> bool:
        self._reserved[sequence.request.index] = self._room_of(sequence.request)
        return True

    def release(self, sequence: RunningSequence) -> None:
        del self._reserved[sequence.request.index]


def log_normal_trace(
    *, requests: int, mean: int, sigma: float, longest: int, seed: int
) -> tuple[Request, ...]:
    """Requests at time zero whose prompt and output are half of a log-normal length each."""
    drawn = draw_lengths(
        LengthDistribution(kind="log_normal", mean=mean, sigma=sigma, low=2, high=longest),
        requests,
        np.random.default_rng(seed),
    )
    return tuple(
        Request(
            index, 0.0, prompt_tokens=int(total) // 2, output_tokens=int(total) - int(total) // 2
        )
        for index, total in enumerate(drawn)
    )


def compare_capacity(
    trace: Sequence[Request],
    *,
    budget_tokens: int,
    longest: int,
    block_tokens: int,
    max_step_tokens: int,
) -> tuple[CapacityRow, ...]:
    """The same trace in the same memory, reserved in three ways, then paged.

    A contiguous cache reserves the longest length, or the next power of two, or the true length:
    that one is the oracle, since nobody knows it when a request starts.
    """
    rooms: dict[str, Callable[[Request], int]] = {
        f"contiguous, reserved to {longest}": lambda _: longest,
        "contiguous, next power of two": lambda one: _power_of_two(one.max_cached_tokens),
        "contiguous, true length (oracle)": lambda one: one.max_cached_tokens,
    }
    spaces: dict[str, MeasuredSpace] = {
        name: ReservedSpace(budget_tokens, room_of) for name, room_of in rooms.items()
    }
    tables = BlockTables(
        num_seats=len(trace),
        max_tokens=longest,
        num_blocks=budget_tokens // block_tokens,
        block_tokens=block_tokens,
    )
    spaces[f"paged, blocks of {block_tokens}"] = BlockSpace(tables)
    return tuple(
        _capacity_row(name, trace, space, max_step_tokens) for name, space in spaces.items()
    )


def compare_batching(
    trace: Sequence[Request], *, max_sequences: int, max_step_tokens: int
) -> BatchingGain:
    """Static against continuous batching with memory for everyone."""
    longest = max(request.max_cached_tokens for request in trace)
    unlimited = ReservedSpace(max_sequences * 2 * longest, lambda _: longest)
    static = StaticScheduler(unlimited, max_sequences=max_sequences, recomputes=False)
    continuous = ContinuousScheduler(
        unlimited, max_sequences=max_sequences, max_step_tokens=max_step_tokens
    )
    outputs = [request.output_tokens for request in trace]
    return BatchingGain(
        static_steps=sum(1 for _ in _steps(static, trace)),
        continuous_steps=sum(1 for _ in _steps(continuous, trace)),
        least_steps=max(-(-sum(outputs) // max_sequences), *outputs),
        least_steps_in_order=_steps_in_order(outputs, max_sequences),
    )


def _steps_in_order(outputs: Sequence[int], places: int) -> int:
    """Steps until the last output is done, if each starts in the place that is free first."""
    free_at = [0] * places
    for output in outputs:
        heapq.heapreplace(free_at, free_at[0] + output)
    return max(free_at)


def _steps(scheduler: Scheduler, trace: Sequence[Request]) -> Iterator[ScheduledStep]:
    """Every step of the trace, handed over when it is scheduled and counted afterwards."""
    for request in trace:
        scheduler.submit(RunningSequence.of(request))
    while (step := scheduler.schedule()) is not None:
        yield step
        scheduler.commit(step)


def _capacity_row(
    name: str, trace: Sequence[Request], space: MeasuredSpace, max_step_tokens: int
) -> CapacityRow:
    scheduler = ContinuousScheduler(
        space, max_sequences=len(trace), max_step_tokens=max_step_tokens
    )
    running: list[int] = []
    reserved: list[int] = []
    wasted: list[int] = []
    num_steps = 0
    for step in _steps(scheduler, trace):
        num_steps += 1
        if scheduler.waiting:
            new = sum(item.known_tokens for item in step.items)
            used = new + sum(one.num_cached for one in scheduler.running)
            running.append(step.num_running)
            reserved.append(space.reserved_tokens)
            wasted.append(space.reserved_tokens - used)
    return CapacityRow(
        name=name,
        peak_running=max(running, default=len(trace)),
        mean_running=float(np.mean(running)) if running else float(len(trace)),
        mean_wasted_tokens=float(np.mean(wasted)) if wasted else 0.0,
        wasted_fraction=sum(wasted) / sum(reserved) if reserved else 0.0,
        num_steps=num_steps,
        num_preemptions=sum(event.kind == "preempted" for event in scheduler.events),
    )


def _power_of_two(tokens: int) -> int:
    """The next one, or the number itself if it is one."""
    return 1 << (tokens - 1).bit_length()
