import pytest

from llmprof.instruments.injection import ExtraWork, HostSleep, QueueAhead
from llmprof.instruments.tracer import GroupTracer, StepTracer
from llmprof.schema.cost import OpGroup, Phase, SequenceShape, StepShape
from tests.fakes import FakeClock, FakeTimer

SHAPE = StepShape(
    phase=Phase.DECODE, sequences=(SequenceShape(new_tokens=1, cached_tokens=5),), logit_rows=1
)


class Sleeper:
    """Sleeps on the fake clock and wakes up late."""

    def __init__(self, clock: FakeClock, late_ns: int = 0) -> None:
        self.clock = clock
        self.late_ns = late_ns
        self.asked_s: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.asked_s.append(seconds)
        self.clock.advance(round(seconds * 1e9) + self.late_ns)


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("late_ns", [0, 300_000])
def test_the_delay_lies_in_the_step_and_in_no_group(busy: bool, late_ns: int) -> None:
    clock = FakeClock(per_reading_ns=1_000)
    tracer = GroupTracer(clock, None, 0)
    sleeper = Sleeper(clock, late_ns)
    probe = HostSleep(tracer, 0.005, busy=busy, clock=clock, sleep=sleeper)
    for _ in range(3):
        probe.step_begin(SHAPE)
        probe.group_begin(OpGroup.NORM)
        clock.advance(2_000_000)
        probe.group_end()
        probe.step_end()
    samples = tracer.samples()
    assert [sample.duration_s for sample in samples] == pytest.approx([0.007] * 3, rel=0.01)
    assert [sample.groups[0].duration_s for sample in samples] == pytest.approx(
        [0.002] * 3, rel=0.01
    )
    assert len(sleeper.asked_s) == (0 if busy else 3)


def test_a_delay_too_short_to_sleep_is_spun() -> None:
    clock = FakeClock(per_reading_ns=1_000)
    tracer = GroupTracer(clock, None, 0)
    sleeper = Sleeper(clock)
    probe = HostSleep(tracer, 0.0005, clock=clock, sleep=sleeper)
    probe.step_begin(SHAPE)
    probe.step_end()
    assert tracer.samples()[0].duration_s == pytest.approx(0.0005, rel=0.02)
    assert sleeper.asked_s == []


def test_extra_work_has_a_group_for_itself_in_steps_of_its_phase_alone() -> None:
    clock = FakeClock()
    tracer = GroupTracer(clock, None, 0)
    taken_s: list[float] = []
    probe = ExtraWork(tracer, lambda: clock.advance(3_000_000), taken_s=taken_s, clock=clock)
    prefill = SHAPE.model_copy(update={"phase": Phase.PREFILL})
    for shape in (prefill, SHAPE):
        probe.step_begin(shape)
        probe.group_begin(OpGroup.NORM)
        clock.advance(2_000_000)
        probe.group_end()
        probe.step_end()
    untouched, extended = tracer.samples()
    assert untouched.duration_s == pytest.approx(0.002)
    assert extended.duration_s == pytest.approx(0.005)
    by_group = {one.group: one.duration_s for one in extended.groups}
    assert by_group == {OpGroup.OTHER: pytest.approx(0.003), OpGroup.NORM: pytest.approx(0.002)}
    assert taken_s == pytest.approx([0.003])


def test_queued_ahead_the_wait_comes_before_the_step_on_the_devices_clock() -> None:
    clock = FakeClock()
    tracer = StepTracer(clock, FakeTimer(clock), 0)
    probe = QueueAhead(tracer, lambda: clock.advance(9_000_000))
    probe.step_begin(SHAPE)
    clock.advance(2_000_000)
    probe.step_end()
    (step,) = tracer.samples()
    assert step.device_s == pytest.approx(0.002)


def test_what_wraps_a_probe_asks_for_groups_only_if_it_does() -> None:
    """A recorded step runs without coming back in between where nobody watches the groups."""
    clock = FakeClock()
    assert not HostSleep(StepTracer(clock, None, 0), 0.001).wants_groups
    assert HostSleep(GroupTracer(clock, None, 0), 0.001).wants_groups
