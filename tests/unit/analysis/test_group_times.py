import pytest

from llmprof.analysis.group_times import grouped_steps, middle, nearest
from llmprof.schema.cost import OpGroup, Phase, SequenceShape, StepShape
from llmprof.schema.run import GroupTime, OwnCost, Round, StepSample
from tests.records import QUIET

OWN_COST = OwnCost(
    probe_calls_per_step=3.0,
    seconds_per_probe_call=0.010,
    seconds_in_group_per_probe_call=0.004,
)
SHAPE = StepShape(
    phase=Phase.DECODE,
    sequences=(SequenceShape(new_tokens=1, cached_tokens=8),),
    logit_rows=1,
)


def _sample(
    duration_s: float, norm_s: float, head_s: float, device_s: float | None = None
) -> StepSample:
    return StepSample(
        shape=SHAPE,
        start_s=3.0,
        duration_s=duration_s,
        device_s=device_s,
        groups=(
            GroupTime(group=OpGroup.NORM, duration_s=norm_s, calls=2),
            GroupTime(group=OpGroup.LM_HEAD, duration_s=head_s, calls=1),
        ),
    )


def _round(*samples: StepSample) -> Round:
    return Round(index=0, before=None, after=None, steps=samples, contention=QUIET)


def test_own_cost_is_taken_out_of_groups_and_step() -> None:
    (step,) = grouped_steps([_round(_sample(1.0, 0.3, 0.5))], Phase.DECODE, OWN_COST)
    assert step.group_s[OpGroup.NORM] == pytest.approx(0.3 - 2 * 0.004)
    assert step.group_s[OpGroup.LM_HEAD] == pytest.approx(0.5 - 0.004)
    assert step.step_s == pytest.approx(1.0 - 3 * 0.010)
    assert step.outside_s == pytest.approx(1.0 - 0.8 - 3 * 0.006)


def test_a_group_shorter_than_its_observer_is_negative_not_zero() -> None:
    (step,) = grouped_steps([_round(_sample(1.0, 0.006, 0.5))], Phase.DECODE, OWN_COST)
    assert step.group_s[OpGroup.NORM] == pytest.approx(-0.002)


def test_device_times_hold_nothing_of_the_host_tracer() -> None:
    sample = _sample(0.1, 0.3, 0.5, device_s=0.9)
    (step,) = grouped_steps([_round(sample)], Phase.DECODE, OWN_COST)
    assert (step.step_s, step.group_s[OpGroup.NORM]) == (0.9, 0.3)
    assert step.outside_s == pytest.approx(0.1)  # gaps between the groups


def test_a_round_gives_its_medians() -> None:
    samples = [_sample(1.0, 0.3, 0.5), _sample(1.1, 0.2, 0.6), _sample(9.0, 0.1, 8.0)]
    (step,) = grouped_steps([_round(*samples)], Phase.DECODE, OWN_COST)
    assert step.group_s[OpGroup.NORM] == pytest.approx(0.2 - 0.008)
    assert step.group_s[OpGroup.LM_HEAD] == pytest.approx(0.6 - 0.004)


def test_a_clean_round_is_no_grouped_round() -> None:
    clean = _sample(1.0, 0.3, 0.5).model_copy(update={"groups": ()})
    assert grouped_steps([_round(clean)], Phase.DECODE, OWN_COST) == ()
    assert grouped_steps([_round(_sample(1.0, 0.3, 0.5))], Phase.PREFILL, OWN_COST) == ()


def test_the_neighbour_in_time_and_the_middle_of_all() -> None:
    rounds = []
    for index, head_s in enumerate((0.5, 0.6, 0.9)):
        sample = _sample(2.0, 0.3, head_s).model_copy(update={"start_s": 10.0 * index})
        rounds.append(_round(sample))
    steps = grouped_steps(rounds, Phase.DECODE, OWN_COST)
    assert nearest(steps, 13.0).group_s[OpGroup.LM_HEAD] == pytest.approx(0.6 - 0.004)
    assert middle(steps).group_s[OpGroup.LM_HEAD] == pytest.approx(0.6 - 0.004)
