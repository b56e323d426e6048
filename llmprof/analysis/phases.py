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
from llmprof.analysis.tokens import tokens_by_step
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
    """Host clock alone; beside a device clock the time to enqueue the step."""


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
        has_device = len(device) == len(samples)
        found.append(
            RoundStep(
                round=one,
                step_s=float(np.median([step_time_s(sample) for sample in samples])),
                device_s=float(np.median(device)) if has_device else None,
                host_s=_enqueue_s(samples) if has_device else _median_host_s(samples),
            )
        )
    return tuple(found)


def _enqueue_s(samples: Sequence[StepSample]) -> float:
    """The shortest: a host that ran far ahead waits in each launch for room in the queue.

    CUDA takes some 1,024 launches ahead. From there on every step seems to take the host as long as
    the device; the first steps after a synchronisation do not.
    """
    return min(sample.duration_s for sample in samples)


def _median_host_s(samples: Sequence[StepSample]) -> float:
    return float(np.median([sample.duration_s for sample in samples]))


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
    rate = _tokens_per_s(rounds, phase, step_s)
    return PhaseMeasurement(
        phase=phase,
        num_steps=sum(len(steps_of(one, phase)) for one in rounds),
        num_rounds=len(steps),
        num_rejected_rounds=len(selection.reasons),
        num_sequences=shape.num_sequences,
        context_tokens=round(_attended_tokens(shape) / shape.num_sequences),
        step_s=step_s,
        step_spread=step_spread(rounds, phase),
        new_tokens_per_s=rate,
        new_tokens_per_s_per_sequence=_divided(rate, shape.num_sequences),
    )


def step_spread(rounds: Sequence[Round], phase: Phase) -> float:
    """Spread of single steps: within a round where it has several, else between the rounds.

    Of several steps per round it is the median over rounds of the spread around the round's own
    median, since what drifts between rounds moves the ceilings too, cancels in the ratios to them,
    and stands in the interval of the step. With one step per round there is nothing else to go by.
    """
    by_round = [steps for one in rounds if (steps := steps_of(one, phase))]
    several = [steps for steps in by_round if len(steps) > 1]
    if several:
        return _spread_within(several)
    return relative_spread(step_time_s(step) for steps in by_round for step in steps)


def _spread_within(by_round: Sequence[Sequence[StepSample]]) -> float:
    """Linear growth with the context is taken out: it is work, not noise."""
    contexts = [
        np.array([float(_attended_tokens(step.shape)) for step in steps]) for steps in by_round
    ]
    times_s = [np.array([step_time_s(step) for step in steps]) for steps in by_round]
    relative = [one / np.median(one) for one in times_s]
    every = np.concatenate(contexts)
    growth = resistant_slope(every, np.concatenate(relative))
    flat = [
        one - growth * (context - np.median(every))
        for one, context in zip(relative, contexts, strict=True)
    ]
    return float(np.median([relative_spread(one) for one in flat]))


def _attended_tokens(shape: StepShape) -> int:
    """Cached ones and new ones: without a cache all of them are new."""
    return shape.cached_tokens + shape.new_tokens


def _tokens_per_s(rounds: Sequence[Round], phase: Phase, step_s: Estimate) -> Estimate:
    """All sequences together. The reciprocal of the step where every step brings as many tokens."""
    tokens = [
        [
            count
            for count, sample in zip(tokens_by_step(one), one.steps, strict=True)
            if sample.shape.phase == phase
        ]
        for one in rounds
    ]
    every = {count for counts in tokens for count in counts}
    if len(every) == 1:
        return reciprocal(step_s, every.pop())
    return median_estimate(
        [
            sum(counts) / sum(step_time_s(sample) for sample in steps_of(one, phase))
            for one, counts in zip(rounds, tokens, strict=True)
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
