"""The split of a phase's step over all rounds: point at the median step, interval from the rounds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from llmprof.analysis.group_times import GroupedStep, grouped_steps, middle, nearest
from llmprof.analysis.phases import RoundStep, round_steps
from llmprof.analysis.rates import Rates, round_rates
from llmprof.analysis.statistics import bounded_estimate
from llmprof.analysis.step_split import StepSplit, StepWork, split_step
from llmprof.schema.cost import Phase
from llmprof.schema.measurement import Estimate
from llmprof.schema.run import Round, RunRecord

RUN_AHEAD = 0.80
"""Host time over device time of a step below which the device surely had its work queued."""


@dataclass(frozen=True, slots=True)
class PhaseSplits:
    """One split at the median step, and per round one with each choice of readings and of alpha."""

    work: StepWork
    center: StepSplit
    rounds: tuple[tuple[StepSplit, ...], ...]
    """Per round: by the mean of its readings and alpha as measured first, then by each reading alone
    and by alpha's bounds."""
    num_grouped: int
    """Rounds whose steps were timed by group."""
    num_independent: int
    """Rounds of the pass that has fewer: the group times of one may serve several."""
    grouped_scale: float
    """Clean step over grouped step; kernels over kernels where the grouped ones ran back to back."""
    device_s: float | None
    """Device time of a step; None without a device clock, as the next one."""
    enqueue_s: float | None
    """Host time of a step that runs under the device."""
    back_to_back: bool
    """The groups' times hold no wait for the host."""

    def estimate(self, quantity: Callable[[StepSplit], float]) -> Estimate:
        """`quantity` at the center; what readings and alpha leave open widens its interval."""
        values = [[quantity(split) for split in variants] for variants in self.rounds]
        return bounded_estimate(
            [one[0] for one in values],
            [min(one) for one in values],
            [max(one) for one in values],
            center=quantity(self.center),
            num_independent=self.num_independent,
        )


def split_phase(
    record: RunRecord,
    rounds: Sequence[Round],
    grouped_rounds: Sequence[Round],
    phase: Phase,
    work: StepWork,
    rates: Rates | None,
) -> PhaseSplits | None:
    """By `rates` at the median step, by the adjacent readings in each round.

    None without group times or without readings: then there is nothing to split by.
    """
    grouped = [
        step for step in grouped_steps(grouped_rounds, phase, record.own_cost) if step.inside_s > 0
    ]
    steps = round_steps(rounds, phase)
    by_round = [_round_splits(record, step, grouped, work) for step in steps] if grouped else []
    judged = tuple(splits for splits in by_round if splits)
    if not judged or rates is None:
        return None
    center, work = middle(grouped), work.at(rates)
    step_s = median(step.step_s for step in steps)
    device_s = _median_device_s(steps)
    enqueue_s = None if device_s is None else median(step.host_s for step in steps)
    kernels_s = _kernels_s(device_s, enqueue_s, center)
    return PhaseSplits(
        work=work,
        center=split_step(step_s, kernels_s, center, work, rates),
        rounds=judged,
        num_grouped=len(grouped),
        num_independent=min(len(judged), len(grouped)),
        grouped_scale=_scale(step_s, kernels_s, center),
        device_s=device_s,
        enqueue_s=enqueue_s,
        back_to_back=center.back_to_back_s is not None,
    )


def _kernels_s(
    device_s: float | None, enqueue_s: float | None, grouped: GroupedStep
) -> float | None:
    """Device time of a clean step without its waits for the host, where the grouped pass tells it.

    A host that surely ran ahead made nobody wait: then the clean time itself is the better one, since
    a device that was held back has rested, and may run at a higher clock.
    """
    alone_s = grouped.back_to_back_s
    if device_s is None or enqueue_s is None or alone_s is None:
        return device_s
    return device_s if enqueue_s <= RUN_AHEAD * device_s else min(device_s, alone_s)


def _scale(step_s: float, kernels_s: float | None, grouped: GroupedStep) -> float:
    if kernels_s is None or grouped.back_to_back_s is None:
        return step_s / grouped.step_s
    return kernels_s / grouped.back_to_back_s


def _round_splits(
    record: RunRecord, step: RoundStep, grouped: Sequence[GroupedStep], work: StepWork
) -> tuple[StepSplit, ...]:
    rates = round_rates(step.round, record.ceilings, work.cost.shape.phase)
    if rates is None:
        return ()
    neighbour = nearest(grouped, step.round.steps[0].start_s)
    kernels_s = _kernels_s(step.device_s, step.host_s, neighbour)
    return tuple(
        split_step(step.step_s, kernels_s, neighbour, one, at)
        for at in rates.variants
        for one in work.at(at).variants
    )


def _median_device_s(steps: Sequence[RoundStep]) -> float | None:
    known = [step.device_s for step in steps if step.device_s is not None]
    return median(known) if len(known) == len(steps) else None
