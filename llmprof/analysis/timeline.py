"""The course of a response, of a round and of its requests, thinned for figures."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np

from llmprof.analysis.latency import in_step, token_ends_s, ttft_s
from llmprof.analysis.phases import step_time_s, steps_of
from llmprof.analysis.request_times import RequestTimes, request_times
from llmprof.analysis.statistics import median_estimate
from llmprof.schema.cost import Phase
from llmprof.schema.run import RequestSample, Round, StepSample
from llmprof.schema.timeline import CacheMoment, ServedRequest, StepTimes, Timeline, TokenGap

MOST_POINTS: Final = 500
"""Of a series: no figure shows more."""

T = TypeVar("T")


def build_timeline(rounds: Sequence[Round]) -> Timeline:
    """`rounds` are those that the measurement counts: rejected ones left out."""
    shown = _median_round(rounds)
    return Timeline(
        round_index=shown.index if shown else None,
        response=_response(rounds),
        requests=_requests(shown) if shown else (),
        cache=_cache(shown) if shown else (),
        steps=tuple(times for phase in Phase if (times := _step_times(rounds, phase))),
    )


def _median_round(rounds: Sequence[Round]) -> Round | None:
    with_steps = [one for one in rounds if one.steps]
    ordered = sorted(with_steps, key=lambda one: sum(step_time_s(step) for step in one.steps))
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def _response(rounds: Sequence[Round]) -> tuple[TokenGap, ...]:
    """Of work of a fixed shape, where every sequence gets its tokens in the same steps."""
    fixed = [one for one in rounds if one.steps and not one.requests and in_step(one)]
    courses = [_gaps_s(one) for one in fixed]
    length = max(map(len, courses), default=0)
    width = -(-length // MOST_POINTS)
    # The first token is another thing than those that follow it: it stands alone.
    starts = [0, *range(1, length, width)] if length else []
    ends = [*starts[1:], length] if starts else []
    return tuple(
        TokenGap(
            first=start + 1,
            last=end,
            gap_s=median_estimate(
                [float(np.median(course[start:end])) for course in courses if course[start:end]]
            ),
        )
        for start, end in zip(starts, ends, strict=True)
    )


def _gaps_s(one: Round) -> list[float]:
    """From the start of the request to its first token, then from token to token."""
    first = ttft_s(one)
    gaps = [later - earlier for earlier, later in pairwise(token_ends_s(one))]
    return gaps if first is None else [first, *gaps]


def _requests(one: Round) -> tuple[ServedRequest, ...]:
    times = iter(request_times(one))
    return tuple(
        _request(one, request, next(times) if request.outcome == "finished" else None)
        for request in one.requests
    )


def _request(one: Round, request: RequestSample, times: RequestTimes | None) -> ServedRequest:
    first_step = request.first_step or 0
    arrival_s = one.steps[first_step].start_s - times.queue_s if times else None
    return ServedRequest(
        index=request.index,
        prompt_tokens=request.prompt_tokens,
        output_tokens=len(request.token_steps),
        preemptions=request.preemptions,
        outcome=request.outcome,
        arrival_s=None if arrival_s is None else arrival_s - one.steps[0].start_s,
        queue_s=times.queue_s if times else None,
        ttft_s=times.ttft_s if times else None,
        tpot_s=times.tpot_s if times else None,
        end_to_end_s=times.end_to_end_s if times else None,
    )


def _cache(one: Round) -> tuple[CacheMoment, ...]:
    start_s = one.steps[0].start_s
    moments = [
        CacheMoment(
            time_s=step.start_s + step_time_s(step) - start_s,
            context_tokens=_longest_context(step),
            reserved_bytes=step.kv.reserved_bytes,
            used_bytes=step.kv.used_bytes,
        )
        for step in one.steps
        if step.kv is not None
    ]
    return tuple(_thinned(moments))


def _longest_context(step: StepSample) -> int:
    return max((s.cached_tokens + s.new_tokens for s in step.shape.sequences), default=0)


def _step_times(rounds: Sequence[Round], phase: Phase) -> StepTimes | None:
    times = sorted(step_time_s(step) for one in rounds for step in steps_of(one, phase))
    if not times:
        return None
    return StepTimes(phase=phase, num_steps=len(times), times_s=tuple(_thinned(times)))


def _thinned(values: Sequence[T]) -> list[T]:
    """At most MOST_POINTS of them, evenly spaced, the first and the last included."""
    if len(values) <= MOST_POINTS:
        return list(values)
    ranks = np.linspace(0, len(values) - 1, MOST_POINTS).round().astype(int)
    return [values[rank] for rank in ranks]
