"""The course of a response, of a round and of its requests."""

from itertools import pairwise

import pytest

from llmprof.analysis.timeline import MOST_POINTS, build_timeline
from llmprof.schema.cost import Phase, SequenceShape, StepShape
from llmprof.schema.run import BatchUse, KvUse, RequestSample, Round, StepSample
from tests.records import a_run_record

QUIET = a_run_record().rounds[0]


def step(phase: Phase, start_s: float, duration_s: float, context: int = 8) -> StepSample:
    new = context if phase is Phase.PREFILL else 1
    shape = StepShape(
        phase=phase,
        sequences=(SequenceShape(count=1, new_tokens=new, cached_tokens=context - new),),
        logit_rows=1,
    )
    kv = KvUse(reserved_bytes=4096, used_bytes=16 * context, blocks_held=1, blocks_total=1)
    batch = BatchUse(running=1, waiting=0, slots_idle=0, padding_tokens=0)
    return StepSample(shape=shape, start_s=start_s, duration_s=duration_s, kv=kv, batch=batch)


def a_round(index: int, decode_s: tuple[float, ...], **changes: object) -> Round:
    """A prefill of 1 s, then decode steps that follow at once."""
    steps, start_s = [step(Phase.PREFILL, 5.0, 1.0)], 6.0
    for position, duration_s in enumerate(decode_s):
        steps.append(step(Phase.DECODE, start_s, duration_s, context=9 + position))
        start_s += duration_s
    return QUIET.model_copy(update={"index": index, "steps": tuple(steps)} | changes)


def test_a_response_begins_with_its_ttft_and_every_gap_is_a_median_over_rounds() -> None:
    rounds = [a_round(0, (0.1, 0.2)), a_round(1, (0.3, 0.4)), a_round(2, (0.2, 0.9))]

    response = build_timeline(rounds).response

    assert [(gap.first, gap.last) for gap in response] == [(1, 1), (2, 2), (3, 3)]
    assert [gap.gap_s.point for gap in response] == pytest.approx([1.0, 0.2, 0.4])
    assert response[2].gap_s.high == pytest.approx(0.9)


def test_a_long_response_is_told_in_fewer_figures_that_cover_every_token() -> None:
    response = build_timeline([a_round(0, tuple([0.01] * 1200))]).response

    assert len(response) <= MOST_POINTS
    assert (response[0].first, response[0].last) == (1, 1)
    assert response[-1].last == 1201
    assert all(after.first == before.last + 1 for before, after in pairwise(response))


def test_a_round_that_ended_early_still_counts_for_the_tokens_it_has() -> None:
    response = build_timeline([a_round(0, (0.1, 0.1)), a_round(1, (0.3,))]).response

    assert [gap.gap_s.num_samples for gap in response] == [2, 2, 1]


def test_the_round_shown_is_the_median_one_with_its_cache() -> None:
    timeline = build_timeline([a_round(0, (9.0,)), a_round(1, (0.1,)), a_round(2, (0.5,))])

    assert timeline.round_index == 2
    assert [moment.time_s for moment in timeline.cache] == pytest.approx([1.0, 1.5])
    assert [moment.context_tokens for moment in timeline.cache] == [8, 9]
    assert [moment.used_bytes for moment in timeline.cache] == [128, 144]


def test_steps_are_in_order_and_thinned_with_both_ends() -> None:
    durations = tuple(1e-3 * (1 + (7 * n) % 1201) for n in range(1201))
    prefill, decode = build_timeline([a_round(0, durations)]).steps

    assert (prefill.phase, prefill.times_s) == (Phase.PREFILL, (1.0,))
    assert decode.num_steps == 1201
    assert len(decode.times_s) == MOST_POINTS
    assert decode.times_s == tuple(sorted(decode.times_s))
    assert (decode.times_s[0], decode.times_s[-1]) == pytest.approx((1e-3, 1.201))


def test_requests_have_their_own_times_and_a_rejected_one_has_none() -> None:
    served = RequestSample(
        index=0,
        arrival_s=0.0,
        prompt_tokens=8,
        output_tokens=3,
        queue_s=0.25,
        first_step=0,
        token_steps=(0, 1, 2),
        outcome="finished",
    )
    rejected = served.model_copy(
        update={
            "index": 1,
            "queue_s": None,
            "first_step": None,
            "token_steps": (),
            "outcome": "rejected",
        }
    )
    timeline = build_timeline([a_round(0, (0.1, 0.3), requests=(rejected, served))])

    first, second = timeline.requests
    assert (first.outcome, first.ttft_s, first.arrival_s) == ("rejected", None, None)
    assert (second.queue_s, second.output_tokens) == (0.25, 3)
    assert second.arrival_s == pytest.approx(-0.25)
    assert second.ttft_s == pytest.approx(1.25)
    assert second.tpot_s == pytest.approx(0.2)  # (0.1 + 0.3) / 2
    assert second.end_to_end_s == pytest.approx(1.65)
    assert timeline.response == ()


def test_nothing_counted_gives_nothing() -> None:
    timeline = build_timeline([])
    assert timeline.round_index is None
    series = (timeline.response, timeline.requests, timeline.cache, timeline.steps)
    assert series == ((), (), (), ())
