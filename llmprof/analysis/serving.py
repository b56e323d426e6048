"""How a trace was served: what users felt, how full the batch was, what the cache wasted."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from llmprof.analysis.phases import step_time_s
from llmprof.analysis.request_times import RequestTimes, request_times
from llmprof.analysis.statistics import median_estimate
from llmprof.schema.run import Round, RunRecord, StepSample
from llmprof.schema.serving import CacheWaste, ServingMeasurement, Spread

P99 = 0.99


def measure_serving(record: RunRecord, rounds: Sequence[Round]) -> ServingMeasurement | None:
    """None where no request was finished: fixed work, or a cache that holds none of them."""
    served = [one for one in rounds if any(r.outcome == "finished" for r in one.requests)]
    if not served:
        return None
    times = [request_times(one) for one in served]
    spans = [_span_s(one) for one in served]
    outputs = [sum(len(request.token_steps) for request in one.requests) for one in served]
    return ServingMeasurement(
        policy=record.settings.batching.policy,
        max_sequences=record.settings.batching.max_sequences,
        num_requests=len(served[0].requests),
        num_rejected=max(_count(one, "rejected") for one in served),
        num_preemptions=max(sum(r.preemptions for r in one.requests) for one in served),
        round_s=median_estimate(spans),
        requests_per_s=median_estimate(
            [len(of_round) / span for of_round, span in zip(times, spans, strict=True)]
        ),
        output_tokens_per_s=median_estimate(
            [tokens / span for tokens, span in zip(outputs, spans, strict=True)]
        ),
        queue_s=_spread(times, lambda one: [one.queue_s]),
        ttft_s=_spread(times, lambda one: [one.ttft_s]),
        tpot_s=_spread_if_any(times, lambda one: [] if one.tpot_s is None else [one.tpot_s]),
        itl_s=_spread_if_any(times, lambda one: one.itl_s),
        end_to_end_s=_spread(times, lambda one: [one.end_to_end_s]),
        mean_running=_mean_running(record, served),
        padding_fraction=_padding_fraction(served),
        cache=_cache_waste(record, served),
    )


def _span_s(one: Round) -> float:
    last = one.steps[-1]
    return last.start_s + step_time_s(last) - one.steps[0].start_s


def _count(one: Round, outcome: str) -> int:
    return sum(request.outcome == outcome for request in one.requests)


def _spread(
    rounds: Sequence[Sequence[RequestTimes]],
    values_of: Callable[[RequestTimes], Iterable[float]],
) -> Spread:
    pooled = [[value for one in times for value in values_of(one)] for times in rounds]
    return Spread(
        p50=median_estimate([float(np.median(values)) for values in pooled]),
        p99=median_estimate(
            [float(np.quantile(values, P99, method="inverted_cdf")) for values in pooled]
        ),
    )


def _spread_if_any(
    rounds: Sequence[Sequence[RequestTimes]],
    values_of: Callable[[RequestTimes], Iterable[float]],
) -> Spread | None:
    """Over the rounds that have any value."""
    having = [times for times in rounds if any(True for one in times for _ in values_of(one))]
    return _spread(having, values_of) if having else None


def _steps(rounds: Sequence[Round]) -> list[StepSample]:
    return [sample for one in rounds for sample in one.steps]


def _weighted_mean(steps: Sequence[StepSample], value: Callable[[StepSample], float]) -> float:
    """Each step weighs as long as it took."""
    return float(np.average([value(s) for s in steps], weights=[step_time_s(s) for s in steps]))


def _mean_running(record: RunRecord, rounds: Sequence[Round]) -> float:
    places = min(record.settings.batching.max_sequences, len(rounds[0].requests))
    return _weighted_mean(
        _steps(rounds), lambda step: places - step.batch.slots_idle if step.batch else 0.0
    )


def _padding_fraction(rounds: Sequence[Round]) -> float:
    steps = _steps(rounds)
    padding = sum(step.batch.padding_tokens for step in steps if step.batch)
    return padding / sum(step.shape.new_tokens for step in steps)


def _cache_waste(record: RunRecord, rounds: Sequence[Round]) -> CacheWaste | None:
    steps = [step for step in _steps(rounds) if step.kv is not None and step.kv.reserved_bytes]
    uses = [step.kv for step in steps if step.kv is not None]
    if not uses:
        return None
    fractions = [use.wasted_bytes / use.reserved_bytes for use in uses]
    return CacheWaste(
        pool_bytes=record.engine.kv_bytes_reserved,
        reserved_peak_bytes=max(use.reserved_bytes for use in uses),
        used_peak_bytes=max(use.used_bytes for use in uses),
        wasted_fraction=float(np.average(fractions, weights=[step_time_s(s) for s in steps])),
    )
