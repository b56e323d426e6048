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
    """Clean step over grouped step."""
    device_s: float | None
    """Device time of a step; None without a device clock, as the next one."""
    enqueue_s: float | None
    """Host time of a step that runs under the device."""

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
    return PhaseSplits(
        work=work,
        center=split_step(step_s, device_s, center, work, rates),
        rounds=judged,
        num_grouped=len(grouped),
        num_independent=min(len(judged), len(grouped)),
        grouped_scale=step_s / center.step_s,
        device_s=device_s,
        enqueue_s=None if device_s is None else median(step.host_s for step in steps),
    )


def _round_splits(
    record: RunRecord, step: RoundStep, grouped: Sequence[GroupedStep], work: StepWork
) -> tuple[StepSplit, ...]:
    rates = round_rates(step.round, record.ceilings)
    if rates is None:
        return ()
    neighbour = nearest(grouped, step.round.steps[0].start_s)
    return tuple(
        split_step(step.step_s, step.device_s, neighbour, one, at)
        for at in rates.variants
        for one in work.at(at).variants
    )


def _median_device_s(steps: Sequence[RoundStep]) -> float | None:
    known = [step.device_s for step in steps if step.device_s is not None]
    return median(known) if len(known) == len(steps) else None
