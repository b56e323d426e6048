import pytest

from llmprof.instruments.tracer import GroupTracer, StepTracer
from llmprof.schema.cost import OpGroup, Phase, SequenceShape, StepShape
from tests.fakes import FakeClock, FakeTimer

MS = 1_000_000


def a_shape(cached_tokens: int = 5) -> StepShape:
    sequence = SequenceShape(new_tokens=1, cached_tokens=cached_tokens)
    return StepShape(phase=Phase.DECODE, sequences=(sequence,), logit_rows=1)


def run_group(tracer: StepTracer, clock: FakeClock, group: OpGroup, ms: int) -> None:
    tracer.group_begin(group)
    clock.advance(ms * MS)
    tracer.group_end()


def test_steps_are_kept_in_order_with_times_since_the_start_of_the_run() -> None:
    clock = FakeClock(now_ns=50 * MS)
    tracer = StepTracer(clock, None, origin_ns=40 * MS)
    for cached, ms in ((5, 3), (6, 4)):
        tracer.step_begin(a_shape(cached))
        run_group(tracer, clock, OpGroup.NORM, ms)
        tracer.step_end()
        clock.advance(MS)
    first, second = tracer.samples()
    assert (first.start_s, first.duration_s) == pytest.approx((0.010, 0.003))
    assert (second.start_s, second.duration_s) == pytest.approx((0.014, 0.004))
    assert (first.shape, second.shape) == (a_shape(5), a_shape(6))
    assert first.device_s is None
    assert first.groups == ()


def test_a_step_that_was_interrupted_leaves_no_sample() -> None:
    clock = FakeClock()
    for tracer in (StepTracer(clock, None, 0), GroupTracer(clock, None, 0)):
        tracer.step_begin(a_shape())
        run_group(tracer, clock, OpGroup.NORM, 1)
        tracer.step_end()
        tracer.step_begin(a_shape())
        tracer.group_begin(OpGroup.ATTENTION)
        assert len(tracer.samples()) == 1


def test_the_device_is_waited_for_and_its_time_kept_beside_the_host_s() -> None:
    clock, device_clock = FakeClock(), FakeClock()
    timer = FakeTimer(device_clock)
    tracer = StepTracer(clock, timer, 0)
    tracer.step_begin(a_shape())
    clock.advance(1 * MS)
    device_clock.advance(7 * MS)
    tracer.step_end()
    (sample,) = tracer.samples()
    assert (sample.duration_s, sample.device_s) == (0.001, 0.007)


def test_groups_are_summed_per_step_and_counted_by_call() -> None:
    clock = FakeClock()
    tracer = GroupTracer(clock, None, 0)
    tracer.step_begin(a_shape())
    run_group(tracer, clock, OpGroup.NORM, 1)
    clock.advance(10 * MS)  # between groups: the host's
    run_group(tracer, clock, OpGroup.ATTENTION, 5)
    run_group(tracer, clock, OpGroup.NORM, 2)
    tracer.step_end()
    tracer.step_begin(a_shape(6))
    run_group(tracer, clock, OpGroup.NORM, 4)
    tracer.step_end()
    first, second = tracer.samples()
    assert [(g.group, g.calls) for g in first.groups] == [
        (OpGroup.NORM, 2),
        (OpGroup.ATTENTION, 1),
    ]
    assert [g.duration_s for g in first.groups] == pytest.approx([0.003, 0.005])
    assert first.duration_s == pytest.approx(0.018)
    assert [(g.group, g.calls, g.duration_s) for g in second.groups] == [(OpGroup.NORM, 1, 0.004)]


def test_a_group_outside_every_step_belongs_to_none() -> None:
    clock = FakeClock()
    tracer = GroupTracer(clock, None, 0)
    run_group(tracer, clock, OpGroup.SAMPLING, 9)
    tracer.step_begin(a_shape())
    run_group(tracer, clock, OpGroup.NORM, 1)
    tracer.step_end()
    run_group(tracer, clock, OpGroup.SAMPLING, 9)
    (sample,) = tracer.samples()
    assert [g.group for g in sample.groups] == [OpGroup.NORM]


def test_groups_are_timed_by_the_device_where_it_has_a_clock() -> None:
    clock, device_clock = FakeClock(), FakeClock()
    timer = FakeTimer(device_clock)
    tracer = GroupTracer(clock, timer, 0)
    tracer.step_begin(a_shape())
    device_clock.advance(1 * MS)
    run_group(tracer, device_clock, OpGroup.LM_HEAD, 6)
    clock.advance(2 * MS)
    tracer.step_end()
    (sample,) = tracer.samples()
    assert [g.duration_s for g in sample.groups] == [0.006]
    assert (sample.duration_s, sample.device_s) == (0.002, 0.007)


def test_a_new_round_starts_with_an_empty_timer() -> None:
    timer = FakeTimer(FakeClock())
    for _ in range(2):
        tracer = GroupTracer(FakeClock(), timer, 0)
        tracer.step_begin(a_shape())
        tracer.step_end()
    assert timer.resets == 2
    assert len(timer.times_ns) == 2
