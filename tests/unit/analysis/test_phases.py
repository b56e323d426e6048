import numpy as np
import pytest

from llmprof.analysis.latency import measure_latency
from llmprof.analysis.phases import measure_phase, median_shape, step_time_s
from llmprof.analysis.tokens import tokens_by_step
from llmprof.analysis.validity import select_rounds
from llmprof.schema.cost import OpGroup, Phase, SequenceShape, StepShape
from llmprof.schema.measurement import PhaseMeasurement
from llmprof.schema.run import BatchUse, RequestSample, Round, StepSample
from tests.records import QUIET, OpPlan, PhasePlan, a_run_record


def _plan(phase: Phase, time_s: float, **changes: int) -> PhasePlan:
    return PhasePlan(
        phase=phase, ops=(OpPlan(group=OpGroup.OTHER, time_s=time_s),), **{"steps": 1, **changes}
    )


def _measured(*plans: PhasePlan, phase: Phase, noise: float = 0.0) -> PhaseMeasurement:
    measurement = measure_phase(select_rounds(a_run_record(plans, noise=noise).rounds), phase)
    assert measurement is not None
    return measurement


def _decode_shape(cached_tokens: int, count: int = 1) -> StepShape:
    sequence = SequenceShape(count=count, new_tokens=1, cached_tokens=cached_tokens)
    return StepShape(phase=Phase.DECODE, sequences=(sequence,), logit_rows=count)


def _decode_round(index: int, durations_s: list[float]) -> Round:
    return Round(
        index=index,
        before=None,
        after=None,
        steps=tuple(
            StepSample(shape=_decode_shape(64 + step), start_s=float(step), duration_s=duration_s)
            for step, duration_s in enumerate(durations_s)
        ),
        contention=QUIET,
    )


def _decode_rounds(*rounds: list[float]) -> PhaseMeasurement:
    found = [_decode_round(index, steps) for index, steps in enumerate(rounds)]
    measurement = measure_phase(select_rounds(found), Phase.DECODE)
    assert measurement is not None
    return measurement


def test_prompt_and_output_speeds_are_two_numbers() -> None:
    """512 prompt tokens in 20 ms and 128 output tokens in 0.5 s are not 1230.8 tok/s of anything."""
    plans = (
        _plan(Phase.PREFILL, 0.02, new_tokens=512, cached_tokens=0),
        _plan(Phase.DECODE, 0.5 / 128, steps=128),
    )
    assert _measured(*plans, phase=Phase.PREFILL).new_tokens_per_s.point == pytest.approx(25_600)
    assert _measured(*plans, phase=Phase.DECODE).new_tokens_per_s.point == pytest.approx(256)


def test_batch_multiplies_the_total_rate_and_not_the_sequence_rate() -> None:
    measured = _measured(_plan(Phase.DECODE, 0.020, batch=8), phase=Phase.DECODE)
    assert measured.step_s.point == pytest.approx(0.020)
    assert measured.new_tokens_per_s.point == pytest.approx(400)
    assert measured.new_tokens_per_s_per_sequence.point == pytest.approx(50)
    assert measured.num_sequences == 8


def test_a_cached_prompt_does_not_count_as_processed() -> None:
    plan = _plan(Phase.PREFILL, 1.82, new_tokens=459, cached_tokens=96_593)
    assert _measured(plan, phase=Phase.PREFILL).new_tokens_per_s.point == pytest.approx(
        252.2, abs=0.05
    )


def test_a_decode_without_a_cache_gives_one_token_per_step_whatever_it_computes() -> None:
    """Two sequences of 200 tokens computed again in 50 ms are 40 tok/s, not 8,000."""
    plan = _plan(Phase.DECODE, 0.05, batch=2, new_tokens=200, cached_tokens=0, steps=9)
    record = a_run_record((plan,), noise=0.0)
    measured = measure_phase(select_rounds(record.rounds), Phase.DECODE)
    assert measured is not None
    assert measured.new_tokens_per_s.point == pytest.approx(40)
    assert measured.new_tokens_per_s_per_sequence.point == pytest.approx(20)
    assert measured.context_tokens == 204
    itl_s = measure_latency(record.rounds).itl_s
    assert itl_s is not None
    assert measured.new_tokens_per_s_per_sequence.point == pytest.approx(1 / itl_s.point)


def test_the_round_is_the_unit_not_the_step() -> None:
    """Many steps of one slow round do not outvote the others."""
    measured = _decode_rounds([0.01] * 3, [0.01] * 3, [0.02] * 300)
    assert measured.step_s.point == 0.01
    assert measured.step_s.num_samples == measured.num_rounds == 3
    assert measured.num_steps == 306


def test_a_growing_context_is_no_spread() -> None:
    growing = [0.010 + 0.0001 * step for step in range(100)]
    assert _decode_rounds(growing, growing, growing).step_spread == pytest.approx(0.0)


def test_noise_is_spread() -> None:
    rng = np.random.default_rng(3)
    rounds = [[float(t) for t in rng.normal(1.0, 0.1, size=300)] for _ in range(3)]
    # quartiles of a normal distribution lie 0.6745 standard deviations from its median
    assert _decode_rounds(*rounds).step_spread == pytest.approx(2 * 0.06745, rel=0.1)


def test_without_a_cache_the_context_grows_too() -> None:
    """Each step computes one token more than the last, and takes 1 % longer."""
    plan = _plan(Phase.DECODE, 0.01, new_tokens=100, cached_tokens=0, steps=40)
    (one,) = a_run_record((plan,), noise=0.0, rounds=1).rounds
    steps = tuple(
        step.model_copy(update={"duration_s": 0.0001 * step.shape.new_tokens}) for step in one.steps
    )
    measured = measure_phase(select_rounds([one.model_copy(update={"steps": steps})]), Phase.DECODE)
    assert measured is not None
    assert measured.step_spread == pytest.approx(0.0, abs=1e-9)


def test_drift_between_rounds_is_no_spread_of_steps_but_widens_the_step() -> None:
    rng = np.random.default_rng(5)
    rounds = [[float(level * t) for t in rng.normal(1.0, 0.01, 50)] for level in (1.0, 1.5, 2.0)]
    measured = _decode_rounds(*rounds)
    assert measured.step_spread == pytest.approx(2 * 0.006745, rel=0.3)
    assert (measured.step_s.low, measured.step_s.high) == pytest.approx((1.0, 2.0), rel=0.01)


def test_with_one_step_per_round_the_rounds_spread() -> None:
    """Few rounds: the range, since their quartiles hide the one that is off."""
    assert _decode_rounds([1.0], [1.0], [1.0], [1.3]).step_spread == pytest.approx(0.3)
    assert _decode_rounds(*[[1.0]] * 5, [1.1], [1.2]).step_spread == pytest.approx(0.05)


def test_one_wild_step_does_not_tilt_the_trend() -> None:
    growing = [0.010 + 0.0001 * step for step in range(100)]
    assert _decode_rounds([*growing, 5.0]).step_spread < 0.001


def test_rejected_rounds_are_counted_and_left_out() -> None:
    bad = QUIET.model_copy(update={"run_queue_fraction": 0.4})
    record = a_run_record(
        (_plan(Phase.DECODE, 0.01),), rounds=4, contention=[QUIET, bad, QUIET, QUIET]
    )
    measured = measure_phase(select_rounds(record.rounds), Phase.DECODE)
    assert measured is not None
    assert (measured.num_rounds, measured.num_rejected_rounds) == (3, 1)


def test_an_absent_phase_has_no_measurement() -> None:
    record = a_run_record((_plan(Phase.DECODE, 0.01),))
    assert measure_phase(select_rounds(record.rounds), Phase.PREFILL) is None


def test_a_run_ahead_device_is_judged_by_its_own_clock() -> None:
    shape = median_shape(a_run_record().rounds, Phase.DECODE)
    enqueued = StepSample(shape=shape, start_s=0.0, duration_s=0.001, device_s=0.004)
    starved = enqueued.model_copy(update={"duration_s": 0.009})
    assert (step_time_s(enqueued), step_time_s(starved)) == (0.004, 0.009)


def test_the_median_shape_is_that_of_the_middle_step() -> None:
    record = a_run_record((_plan(Phase.DECODE, 0.01, steps=9, cached_tokens=100),))
    assert median_shape(record.rounds, Phase.DECODE).cached_tokens == 104


def test_varying_tokens_per_step_are_summed_over_the_round() -> None:
    one = _decode_round(0, [1.0, 3.0])
    wide = _decode_shape(64, count=7)
    mixed = one.model_copy(
        update={"steps": (one.steps[0], one.steps[1].model_copy(update={"shape": wide}))}
    )
    measured = measure_phase(select_rounds([mixed]), Phase.DECODE)
    assert measured is not None
    assert measured.new_tokens_per_s.point == 2.0  # 8 tokens in 4 s


def _request(index: int, prompt_tokens: int, *token_steps: int) -> RequestSample:
    return RequestSample(
        index=index,
        arrival_s=0.0,
        prompt_tokens=prompt_tokens,
        output_tokens=len(token_steps),
        queue_s=0.0,
        first_step=token_steps[0],
        token_steps=token_steps,
        outcome="finished",
    )


def _served_step(phase: Phase, *sequences: tuple[int, int], padding: int = 0) -> StepSample:
    """Sequences as (new tokens, cached tokens)."""
    shape = StepShape(
        phase=phase,
        sequences=tuple(
            SequenceShape(new_tokens=new, cached_tokens=cached) for new, cached in sequences
        ),
        logit_rows=len(sequences),
    )
    batch = BatchUse(running=2, waiting=0, slots_idle=0, padding_tokens=padding)
    return StepSample(shape=shape, start_s=0.0, duration_s=1.0, batch=batch)


def _served(requests: tuple[RequestSample, ...], *steps: StepSample) -> tuple[int, ...]:
    return tokens_by_step(
        Round(
            index=0,
            before=None,
            after=None,
            steps=steps,
            contention=QUIET,
            requests=requests,
        )
    )


def test_padding_of_a_static_batch_is_worth_nothing() -> None:
    """Prompts of 5 and 8, outputs of 3 and 2: in the last step one sequence repeats itself."""
    assert _served(
        (_request(0, 5, 0, 1, 2), _request(1, 8, 0, 1)),
        _served_step(Phase.PREFILL, (8, 0), (8, 0), padding=3),
        _served_step(Phase.DECODE, (1, 8), (1, 8)),
        _served_step(Phase.DECODE, (1, 9), (1, 8), padding=1),
    ) == (13, 2, 1)


def test_a_mixed_step_counts_prompt_and_output_tokens() -> None:
    assert _served(
        (_request(0, 5, 0, 1), _request(1, 8, 1)),
        _served_step(Phase.PREFILL, (5, 0)),
        _served_step(Phase.MIXED, (1, 5), (8, 0)),
    ) == (5, 9)
    # without a cache the first one's six tokens are computed again for its one
    assert _served(
        (_request(0, 5, 0, 1), _request(1, 8, 1)),
        _served_step(Phase.PREFILL, (5, 0)),
        _served_step(Phase.MIXED, (6, 0), (8, 0)),
    ) == (5, 9)
