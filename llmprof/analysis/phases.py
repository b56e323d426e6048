"""How long the steps of a phase took. The unit of analysis is the round.

Steps of one round share its clock, its neighbours and its memory layout, so they are not
independent: a round gives one number, the median of its steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llmprof.analysis.statistics import (
    median_estimate,
    reciprocal,
    relative_spread,
    resistant_slope,
)
from llmprof.analysis.validity import RoundSelection
from llmprof.schema.cost import Phase, StepShape
from llmprof.schema.measurement import Estimate, PhaseMeasurement
from llmprof.schema.run import Round, StepSample


@dataclass(frozen=True, slots=True)
class RoundStep:
    """The median step of one phase in one round."""

    round: Round
    step_s: float
    device_s: float | None
    host_s: float
    """Host clock alone; on a device that runs behind the host it is the time to enqueue."""


def step_time_s(sample: StepSample) -> float:
    """Wall time of a step.

    The device is synchronised once per round, so the host clock may show only the time to enqueue:
    the longer of the two is what a step takes.
    """
    return max(sample.duration_s, sample.device_s or 0.0)


def steps_of(one: Round, phase: Phase) -> tuple[StepSample, ...]:
    return tuple(sample for sample in one.steps if sample.shape.phase == phase)


def round_steps(rounds: Sequence[Round], phase: Phase) -> tuple[RoundStep, ...]:
    """One entry per round that has steps of `phase`."""
    found = []
    for one in rounds:
        samples = steps_of(one, phase)
        if not samples:
            continue
        device = [sample.device_s for sample in samples if sample.device_s is not None]
        found.append(
            RoundStep(
                round=one,
                step_s=float(np.median([step_time_s(sample) for sample in samples])),
                device_s=float(np.median(device)) if len(device) == len(samples) else None,
                host_s=float(np.median([sample.duration_s for sample in samples])),
            )
        )
    return tuple(found)


def median_shape(rounds: Sequence[Round], phase: Phase) -> StepShape:
    """Shape of the step in the middle when the steps are put in the order of their work."""
    shapes = [sample.shape for one in rounds for sample in steps_of(one, phase)]
    ordered = sorted(shapes, key=lambda shape: (shape.new_tokens, shape.cached_tokens))
    return ordered[len(ordered) // 2]


def measure_phase(selection: RoundSelection, phase: Phase) -> PhaseMeasurement | None:
    """Figures of one phase over the valid rounds; None where it never ran."""
    steps = round_steps(selection.rounds, phase)
    if not steps:
        return None
    rounds = [step.round for step in steps]
    shape = median_shape(rounds, phase)
    step_s = median_estimate([step.step_s for step in steps])
    rate = _new_tokens_per_s(rounds, phase, step_s)
    return PhaseMeasurement(
        phase=phase,
        num_steps=sum(len(steps_of(one, phase)) for one in rounds),
        num_rounds=len(steps),
        num_rejected_rounds=len(selection.reasons),
        num_sequences=shape.num_sequences,
        context_tokens=round(shape.cached_tokens / shape.num_sequences),
        step_s=step_s,
        step_spread=step_spread(rounds, phase),
        new_tokens_per_s=rate,
        new_tokens_per_s_per_sequence=_divided(rate, shape.num_sequences),
    )


def step_spread(rounds: Sequence[Round], phase: Phase) -> float:
    """IQR over median of the single steps, their linear growth with the context taken out.

    A context that grows from step to step makes later steps longer: that is work, not noise.
    """
    samples = [sample for one in rounds for sample in steps_of(one, phase)]
    times_s = np.array([step_time_s(sample) for sample in samples])
    cached = np.array([float(sample.shape.cached_tokens) for sample in samples])
    growth_s = resistant_slope(cached, times_s) * (cached - np.median(cached))
    return relative_spread(times_s - growth_s)


def _new_tokens_per_s(rounds: Sequence[Round], phase: Phase, step_s: Estimate) -> Estimate:
    """All sequences together. The reciprocal of the step where every step brings as many tokens."""
    samples = [steps_of(one, phase) for one in rounds]
    tokens = {sample.shape.new_tokens for steps in samples for sample in steps}
    if len(tokens) == 1:
        return reciprocal(step_s, tokens.pop())
    return median_estimate(
        [
            sum(sample.shape.new_tokens for sample in steps) / sum(map(step_time_s, steps))
            for steps in samples
        ]
    )


def _divided(estimate: Estimate, divisor: int) -> Estimate:
    return Estimate(
        point=estimate.point / divisor,
        low=estimate.low / divisor,
        high=estimate.high / divisor,
        confidence=estimate.confidence,
        num_samples=estimate.num_samples,
    )
