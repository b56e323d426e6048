import pytest

from llmprof.instruments.hold_back import seconds_to_enqueue
from llmprof.schema.cost import Phase, SequenceShape, StepShape
from llmprof.schema.run import StepSample


def step(phase: Phase, duration_s: float) -> StepSample:
    shape = StepShape(
        phase=phase, sequences=(SequenceShape(new_tokens=1, cached_tokens=1),), logit_rows=1
    )
    return StepSample(shape=shape, start_s=0.0, duration_s=duration_s, device_s=1.0)


def test_the_slowest_phase_counts_at_its_fastest_step() -> None:
    steps = [step(Phase.PREFILL, 0.004), step(Phase.DECODE, 0.003), step(Phase.DECODE, 0.9)]
    assert seconds_to_enqueue(steps) == pytest.approx(2 * 0.004 + 0.002)


def test_no_step_is_held_back_for_long() -> None:
    assert seconds_to_enqueue([step(Phase.PREFILL, 0.6)]) == 0.05
    assert seconds_to_enqueue([]) == 0.002
