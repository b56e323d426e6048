"""Points on the roofline: each phase, and decode's projections and attention apart."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmprof.analysis.op_roof import link_time_s, roof_bytes
from llmprof.analysis.phases import round_steps
from llmprof.analysis.rates import Rates, round_rates
from llmprof.analysis.splits import PhaseSplits
from llmprof.analysis.statistics import bounded_estimate, reciprocal
from llmprof.analysis.step_split import StepWork
from llmprof.schema.cost import PROJECTIONS, OpCost, OpGroup, Phase
from llmprof.schema.measurement import Estimate
from llmprof.schema.report import RooflinePoint
from llmprof.schema.run import Round, RunRecord

DECODE_PARTS = {
    "decode projections": PROJECTIONS,
    "decode attention": (OpGroup.ATTENTION,),
}


@dataclass(frozen=True, slots=True)
class Timing:
    """Time of some ops and how it relates to their roof."""

    time_s: Estimate
    roof_fraction: Estimate
    share: float
    """Of the phase's step."""


def step_roof_fraction(
    record: RunRecord, rounds: Sequence[Round], phase: Phase, work: StepWork
) -> Estimate | None:
    """Least time of a step over its time: the median of per-round ratios to the adjacent readings.

    The least time is the sum over ops of their longer link, without fixed cost. None without
    readings, or for a step that neither moves required bytes nor computes.
    """
    ratios = []
    for step in round_steps(rounds, phase):
        rates = round_rates(step.round, record.ceilings, phase)
        if rates is None:
            continue
        ratios.append(
            [
                link_time_s(work.cost.ops, variant, work.cache_bytes) / step.step_s
                for variant in rates.variants
            ]
        )
    if not ratios or not any(one[0] for one in ratios):
        return None
    return bounded_estimate(
        [one[0] for one in ratios], [min(one) for one in ratios], [max(one) for one in ratios]
    )


def median_step_rates(
    rates: Rates, work: StepWork, step_s: Estimate, fraction: Estimate | None
) -> Rates:
    """The rates that go with the median step: the least time at them over it is the roof fraction.

    `rates` are the medians over the rounds. Where ceilings and steps drift together, the ratio of
    two medians is not the median of the ratios; one factor on every link makes them agree, so that
    points, ledger and verdict all tell the same fraction.
    """
    if fraction is None:
        return rates
    least_s = link_time_s(work.cost.ops, rates, work.cache_bytes)
    return rates.scaled(least_s / (fraction.point * step_s.point))


def phase_points(
    phase: Phase,
    work: StepWork,
    whole: Timing,
    rates: Rates,
    splits: PhaseSplits | None,
) -> tuple[RooflinePoint, ...]:
    """The phase itself, then its parts where group times exist, at the rates of the median step."""
    points = [_point(phase.value, phase, work.cost.ops, whole, rates, work.cache_bytes)]
    if phase == Phase.DECODE and splits is not None:
        points += [
            _part_point(label, groups, phase, splits, rates)
            for label, groups in DECODE_PARTS.items()
        ]
    return tuple(point for point in points if point is not None)


def _part_point(
    label: str,
    groups: tuple[OpGroup, ...],
    phase: Phase,
    splits: PhaseSplits,
    rates: Rates,
) -> RooflinePoint | None:
    timed = [group for group in groups if group in splits.center.groups]
    ops = [op for group in timed for op in splits.work.of(group)]
    time_s = splits.estimate(lambda split: split.time_of(timed))
    if not ops or time_s.low <= 0:
        return None
    timing = Timing(
        time_s=time_s,
        roof_fraction=splits.estimate(lambda split: split.fraction_of(timed)),
        share=time_s.point / splits.center.step_s,
    )
    return _point(label, phase, ops, timing, rates, splits.work.cache_bytes)


def _point(
    label: str,
    phase: Phase,
    ops: Sequence[OpCost],
    timing: Timing,
    rates: Rates,
    cache_bytes: int | None,
) -> RooflinePoint | None:
    """None for work without FLOPs or without required bytes: it has no place on these axes."""
    flops = sum(op.flops for op in ops)
    required = roof_bytes(ops, cache_bytes)
    if not flops or not required:
        return None
    every_byte = sum(op.traffic.total for op in ops)
    return RooflinePoint(
        label=label,
        phase=phase,
        dtype=max(ops, key=lambda op: op.flops).compute_dtype,
        flops=flops,
        bytes_required=required,
        bytes_with_activations=every_byte,
        intensity_flops_per_byte=flops / required,
        intensity_low_flops_per_byte=flops / every_byte,
        achieved_flops_per_s=reciprocal(timing.time_s, flops),
        achieved_bytes_per_s=reciprocal(timing.time_s, required),
        attainable_flops_per_s=flops / link_time_s(ops, rates, cache_bytes),
        roof_fraction=timing.roof_fraction,
        time_share=timing.share,
        mfu=None,
        mbu=None,
    )
