import pytest

from llmprof.instruments.own_cost import measure_own_cost
from llmprof.schema.cost import OpGroup, Phase, SequenceShape, StepShape
from llmprof.schema.run import GroupTime, StepSample
from tests.fakes import FakeClock, FakeTimer


def a_sample(*calls: int) -> StepSample:
    shape = StepShape(
        phase=Phase.DECODE,
        sequences=(SequenceShape(new_tokens=1, cached_tokens=5),),
        logit_rows=1,
    )
    groups = tuple(
        GroupTime(group=group, duration_s=0.001, calls=count)
        for group, count in zip(OpGroup, calls, strict=False)
    )
    return StepSample(shape=shape, start_s=0.0, duration_s=0.01, groups=groups)


def test_a_pair_costs_its_two_clock_readings_and_holds_one_of_them_inside() -> None:
    # The clock moves by 100 ns at each reading and by nothing else.
    cost = measure_own_cost(FakeClock(per_reading_ns=100), None, ())
    empty_s = 100e-9 / 256  # the loop's own end reading, spread over its pairs
    assert cost.seconds_per_empty_call == pytest.approx(empty_s)
    assert cost.seconds_per_probe_call == pytest.approx(200e-9)
    assert cost.seconds_in_group_per_probe_call == pytest.approx(100e-9)


def test_calls_per_step_are_the_mean_over_the_grouped_samples() -> None:
    clock = FakeClock(per_reading_ns=1)
    cost = measure_own_cost(clock, None, (a_sample(10, 20), a_sample(40)), sampler_cpu_s=0.25)
    assert cost.probe_calls_per_step == 35
    assert cost.sampler_cpu_s == 0.25
    assert measure_own_cost(clock, None, ()).probe_calls_per_step == 0


def test_a_device_s_timestamps_take_nothing_from_a_group() -> None:
    clock = FakeClock(per_reading_ns=1)
    cost = measure_own_cost(clock, FakeTimer(clock), ())
    assert cost.seconds_in_group_per_probe_call == 0


def test_a_step_costs_the_readings_at_its_boundaries() -> None:
    cost = measure_own_cost(FakeClock(per_reading_ns=100), None, ())
    assert cost.seconds_per_step == pytest.approx(200e-9, rel=0.01)
