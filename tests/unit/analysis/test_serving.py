"""Latency of single requests and of a whole trace, against figures worked out by hand."""

import pytest

from llmprof.analysis.latency import measure_latency
from llmprof.analysis.request_times import request_times
from llmprof.analysis.serving import measure_serving
from llmprof.analysis.serving_caveats import serving_caveats
from llmprof.schema.cost import Phase, SequenceShape, StepShape
from llmprof.schema.run import (
    BatchUse,
    KvUse,
    RequestSample,
    Round,
    RunRecord,
    ServingEvent,
    StepSample,
)
from llmprof.schema.settings import BatchingSettings
from tests.records import QUIET, a_run_record

BOUNDS_S = [(10.0, 11.0), (11.0, 11.5), (11.5, 12.0), (12.5, 13.5)]
"""Start and end of each step; for half a second nobody is there."""


def a_step(
    index: int, new_tokens: int, *, idle: int, padding: int = 0, used: int = 60
) -> StepSample:
    start_s, end_s = BOUNDS_S[index]
    sequence = SequenceShape(new_tokens=new_tokens, cached_tokens=4)
    return StepSample(
        shape=StepShape(phase=Phase.MIXED, sequences=(sequence,), logit_rows=1),
        start_s=start_s,
        duration_s=end_s - start_s,
        kv=KvUse(reserved_bytes=80, used_bytes=used, blocks_held=5, blocks_total=10),
        batch=BatchUse(running=2 - idle, waiting=0, slots_idle=idle, padding_tokens=padding),
    )


def a_request(index: int, first: int, queue_s: float, steps: tuple[int, ...]) -> RequestSample:
    return RequestSample(
        index=index,
        arrival_s=0.0,
        prompt_tokens=5,
        output_tokens=len(steps),
        queue_s=queue_s,
        first_step=first,
        token_steps=steps,
        preemptions=index,
        outcome="finished",
    )


REJECTED = RequestSample(
    index=3,
    arrival_s=0.0,
    prompt_tokens=900,
    output_tokens=9,
    queue_s=None,
    first_step=None,
    token_steps=(),
    outcome="rejected",
    reason="its 908 tokens are more than the whole KV cache holds",
)


def a_round(index: int = 0) -> Round:
    """Two requests share three steps, a third comes after a pause, a fourth is turned away."""
    return Round(
        index=index,
        before=None,
        after=None,
        steps=(
            a_step(0, 12, idle=0),
            a_step(1, 2, idle=0, used=40),
            a_step(2, 2, idle=0, padding=1),
            a_step(3, 4, idle=1),
        ),
        contention=QUIET,
        requests=(
            a_request(0, first=0, queue_s=0.25, steps=(0, 1, 2)),
            a_request(1, first=0, queue_s=0.75, steps=(1,)),
            a_request(2, first=3, queue_s=0.0, steps=(3,)),
            REJECTED,
        ),
        events=(ServingEvent(step=0, kind="rejected", request=3, message=REJECTED.reason or ""),),
    )


def a_served_record() -> RunRecord:
    record = a_run_record()
    settings = record.settings.model_copy(
        update={
            "batching": BatchingSettings.model_validate(
                {"policy": "continuous", "max_sequences": 2}
            )
        }
    )
    rounds = tuple(a_round(index) for index in range(3))
    return record.model_copy(update={"rounds": rounds, "settings": settings})


def test_times_of_single_requests() -> None:
    first, second, third = request_times(a_round())
    assert (first.queue_s, first.ttft_s, first.end_to_end_s) == (0.25, 1.25, 2.25)
    assert first.tpot_s == 0.5
    assert first.itl_s == (0.5, 0.5)
    assert (second.ttft_s, second.tpot_s, second.itl_s) == (2.25, None, ())
    assert third.ttft_s == 1.0


def test_latency_is_the_median_request_of_the_median_round() -> None:
    latency = measure_latency([a_round(index) for index in range(3)])
    assert latency.ttft_s is not None
    assert latency.tpot_s is not None
    assert latency.itl_s is not None
    assert (latency.ttft_s.point, latency.ttft_s.num_samples) == (1.25, 3)
    assert latency.tpot_s.point == 0.5
    assert latency.itl_s.point == 0.5


def test_a_trace_as_a_whole() -> None:
    record = a_served_record()
    found = measure_serving(record, record.rounds)
    assert found is not None
    assert (found.num_requests, found.num_rejected, found.num_preemptions) == (4, 1, 3)
    assert found.round_s.point == 3.5
    assert found.requests_per_s.point == pytest.approx(3 / 3.5)
    assert found.output_tokens_per_s.point == pytest.approx(5 / 3.5)
    assert (found.ttft_s.p50.point, found.ttft_s.p99.point) == (1.25, 2.25)
    assert (found.queue_s.p50.point, found.queue_s.p99.point) == (0.25, 0.75)
    assert found.end_to_end_s.p99.point == 2.25
    # 1 + 0.5 + 0.5 s with two sequences, 1 s with one
    assert found.mean_running == pytest.approx((2 * 2.0 + 1 * 1.0) / 3)
    assert found.padding_fraction == pytest.approx(1 / 20)
    assert found.cache is not None
    assert found.cache.wasted_fraction == pytest.approx((20 / 80 * 2.5 + 40 / 80 * 0.5) / 3)
    assert (found.cache.reserved_peak_bytes, found.cache.used_peak_bytes) == (80, 60)


def test_caveats_name_who_was_turned_away_and_what_was_computed_twice() -> None:
    record = a_served_record()
    serving = measure_serving(record, record.rounds)
    caveats = {caveat.code: caveat.message for caveat in serving_caveats(record, serving)}
    assert set(caveats) == {"rejected", "preempted"}
    assert "1 of 4 requests" in caveats["rejected"]
    assert "908 tokens" in caveats["rejected"]
    assert "3 times per round" in caveats["preempted"]
    assert serving is not None
    padded = serving.model_copy(update={"num_preemptions": 0, "padding_fraction": 0.34})
    (padding,) = serving_caveats(a_run_record(), padded)
    assert padding.code == "padding"
    assert "34 %" in padding.message


def test_fixed_work_is_not_served() -> None:
    record = a_run_record()
    assert measure_serving(record, record.rounds) is None
    assert serving_caveats(record, None) == ()
