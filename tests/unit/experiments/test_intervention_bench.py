from llmprof.experiments.intervention_bench import medians
from llmprof.schema.cost import Phase, SequenceShape, StepShape
from llmprof.schema.run import StepSample


def sample(phase: Phase, host_s: float, device_s: float | None = None) -> StepSample:
    shape = StepShape(
        phase=phase, sequences=(SequenceShape(new_tokens=1, cached_tokens=5),), logit_rows=1
    )
    return StepSample(shape=shape, start_s=0.0, duration_s=host_s, device_s=device_s)


def test_a_step_takes_the_longer_of_host_and_device() -> None:
    steps = [sample(Phase.DECODE, 0.004, 0.010), sample(Phase.DECODE, 0.012, 0.010)]
    assert medians(steps) == {Phase.DECODE: (0.010 + 0.012) / 2}


def test_queued_ahead_the_hosts_time_does_not_count() -> None:
    """The host needs 12 ms to enqueue what the device does in 5."""
    assert medians([sample(Phase.DECODE, 0.012, 0.005)], device_only=True) == {Phase.DECODE: 0.005}


def test_phases_are_kept_apart() -> None:
    steps = [sample(Phase.PREFILL, 0.1), sample(Phase.DECODE, 0.01), sample(Phase.DECODE, 0.03)]
    assert medians(steps) == {Phase.PREFILL: 0.1, Phase.DECODE: 0.02}
