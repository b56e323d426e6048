from datetime import timedelta

import pytest

from llmprof.analysis.rates import distinct_readings
from llmprof.analysis.sm_clock import phase_clock_hz
from llmprof.experiments.visits import joined, visit_settings
from llmprof.schema.cost import Phase
from llmprof.schema.run import ClockSample, DeviceTelemetry
from llmprof.schema.settings import RunConfig
from tests.records import a_run_record


def test_the_rounds_are_shared_out_and_none_is_lost() -> None:
    config = RunConfig.model_validate({"model": "m", "measure": {"rounds": 8}})
    assert [visit_settings(config, n).measure.rounds for n in (1, 2, 3, 8, 20)] == [8, 4, 3, 1, 1]


def test_joined_rounds_follow_each_other_on_one_clock() -> None:
    first = a_run_record(rounds=2, seed=1)
    second = a_run_record(rounds=3, seed=2)
    second = second.model_copy(update={"created": first.created + timedelta(seconds=1000)})
    whole = joined([first, second])
    assert [one.index for one in whole.rounds] == [0, 1, 2, 3, 4]
    assert whole.rounds[:2] == first.rounds
    assert whole.rounds[2].steps[0].start_s == pytest.approx(
        1000 + second.rounds[0].steps[0].start_s
    )
    assert whole.rounds[2].steps[0].duration_s == second.rounds[0].steps[0].duration_s
    # Two visits' readings are not taken for one because they were taken at the same time of each.
    assert len(distinct_readings(whole.rounds)) == 3 + 4
    assert len(whole.grouped) == 5
    assert whole.caveats == first.caveats


def test_one_visit_is_the_run_itself() -> None:
    record = a_run_record()
    assert joined([record]) is record


def test_visits_that_give_other_tokens_are_told() -> None:
    first = a_run_record()
    other = first.model_copy(update={"output_sha256": "another"})
    assert [c.code for c in joined([first, other]).caveats] == ["outputs-differ"]


def test_samples_of_the_clock_stay_beside_their_steps() -> None:
    """A later visit's are found in its own steps, so its matmul ceiling is scaled as before."""
    first = a_run_record(rounds=1)
    (one,) = first.rounds
    step = next(step for step in one.steps if step.shape.phase is Phase.DECODE)
    samples = tuple(
        ClockSample(time_s=step.start_s + share * step.duration_s, sm_clock_hz=1.5e9)
        for share in (0.2, 0.5, 0.8)
    )
    timed = one.model_copy(update={"telemetry": DeviceTelemetry(sm_clock_samples=samples)})
    later = first.model_copy(
        update={"created": first.created + timedelta(seconds=1000), "rounds": (timed,)}
    )
    assert phase_clock_hz(timed, Phase.DECODE) == 1.5e9
    assert phase_clock_hz(joined([first, later]).rounds[1], Phase.DECODE) == 1.5e9


def test_what_all_visits_have_part_in_is_that_of_all() -> None:
    """Sensors take 2 + 3 ms for the steps of both; the larger peak; the warm-up that did not settle."""
    first, second = (
        record.model_copy(
            update={
                "own_cost": record.own_cost.model_copy(update={"sampler_cpu_s": cpu_s}),
                "peak_memory_bytes": peak_bytes,
                "warmup": record.warmup.model_copy(update={"settled": settled}),
            }
        )
        for record, cpu_s, peak_bytes, settled in (
            (a_run_record(rounds=2), 0.002, 100, True),
            (a_run_record(rounds=2, status="partial"), 0.003, 200, False),
        )
    )
    whole = joined([second, first])
    assert whole.own_cost.sampler_cpu_s == pytest.approx(0.005)
    assert whole.peak_memory_bytes == 200
    assert joined([first, second]).warmup.settled is whole.warmup.settled is False
    assert (whole.status, whole.status_reason) == ("partial", "interrupted in round 3")
