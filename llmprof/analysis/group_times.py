"""Time of each op group from the grouped pass, with the cost of observing taken out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from llmprof.analysis.phases import step_time_s, steps_of
from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.run import OwnCost, Round, StepSample


@dataclass(frozen=True, slots=True)
class GroupedStep:
    """The median step of one grouped round."""

    start_s: float
    """Of its round, since the start of the run."""
    step_s: float
    group_s: Mapping[OpGroup, float]
    outside_s: float
    """Of the step (where there is a device clock: of its device time) outside every group."""
    back_to_back_s: float | None = None
    """The step's kernels alone on a device that was held back until all were enqueued."""

    @property
    def inside_s(self) -> float:
        return sum(self.group_s.values())


def grouped_steps(
    rounds: Sequence[Round], phase: Phase, own_cost: OwnCost
) -> tuple[GroupedStep, ...]:
    """One entry per round whose steps of `phase` were timed by group."""
    found = []
    for one in rounds:
        samples = [sample for sample in steps_of(one, phase) if sample.groups]
        if samples:
            steps = [_corrected(sample, own_cost, one.held_back) for sample in samples]
            found.append(_median_step(steps))
    return tuple(found)


def nearest(steps: Sequence[GroupedStep], time_s: float) -> GroupedStep:
    """The grouped round that ran closest to `time_s`: the passes take turns on a drifting machine."""
    return min(steps, key=lambda step: abs(step.start_s - time_s))


def middle(steps: Sequence[GroupedStep]) -> GroupedStep:
    """Medians over the rounds."""
    return _median_step(steps)


def _corrected(sample: StepSample, own_cost: OwnCost, held_back: bool) -> GroupedStep:
    """One step without the tracer: a pair of hooks costs the step more than its group.

    On the device's clock nothing is taken out: its marks lie between the kernels.
    """
    on_host = sample.device_s is None
    in_group_s = own_cost.seconds_in_group_per_probe_call if on_host else 0.0
    in_step_s = own_cost.seconds_per_probe_call if on_host else 0.0
    group_s = {one.group: one.duration_s - in_group_s * one.calls for one in sample.groups}
    step_s = step_time_s(sample) - in_step_s * sum(one.calls for one in sample.groups)
    inner_s = step_s if sample.device_s is None else sample.device_s
    return GroupedStep(
        start_s=sample.start_s,
        step_s=step_s,
        group_s=group_s,
        outside_s=inner_s - sum(group_s.values()),
        back_to_back_s=sample.device_s if held_back else None,
    )


def _median_step(steps: Sequence[GroupedStep]) -> GroupedStep:
    groups = dict.fromkeys(group for step in steps for group in step.group_s)
    return GroupedStep(
        start_s=min(step.start_s for step in steps),
        step_s=_median(step.step_s for step in steps),
        group_s={
            group: _median(step.group_s.get(group, 0.0) for step in steps) for group in groups
        },
        outside_s=_median(step.outside_s for step in steps),
        back_to_back_s=_median_of_known([step.back_to_back_s for step in steps]),
    )


def _median_of_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _median(known) if len(known) == len(values) else None


def _median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))
