"""Everything known about one phase, gathered once: what the verdict and its caveats rest on."""

from dataclasses import dataclass

from llmprof.analysis.op_roof import link_time_s
from llmprof.analysis.phases import measure_phase
from llmprof.analysis.rates import Rates, median_rates
from llmprof.analysis.roofline import (
    Timing,
    median_step_rates,
    phase_points,
    step_roof_fraction,
)
from llmprof.analysis.splits import PhaseSplits, split_phase
from llmprof.analysis.step_split import StepWork
from llmprof.analysis.step_work import formulas_missing, median_step_work
from llmprof.analysis.validity import RoundSelection
from llmprof.schema.cost import Phase
from llmprof.schema.measurement import Estimate, PhaseMeasurement
from llmprof.schema.report import RooflinePoint
from llmprof.schema.run import RunRecord


@dataclass(frozen=True, slots=True)
class PhaseCase:
    """One phase of a run. What could not be had is None."""

    phase: Phase
    measurement: PhaseMeasurement
    clean: RoundSelection
    grouped: RoundSelection
    rates: Rates | None
    """Of the median step."""
    work: StepWork | None
    splits: PhaseSplits | None
    roof_fraction: Estimate | None
    missing_formulas: tuple[str, ...] = ()
    """Matrix operators that ran and whose FLOPs nobody can count: no FLOP/s is claimed then."""

    @property
    def points(self) -> tuple[RooflinePoint, ...]:
        """Empty without readings or FLOPs, or for a step that has no least time."""
        if self.missing_formulas:
            return ()
        if self.work is None or self.rates is None or self.roof_fraction is None:
            return ()
        whole = Timing(time_s=self.measurement.step_s, roof_fraction=self.roof_fraction, share=1.0)
        return phase_points(self.phase, self.work, whole, self.rates, self.splits)


def gather_phase(
    record: RunRecord, clean: RoundSelection, grouped: RoundSelection, phase: Phase
) -> PhaseCase | None:
    """None for a phase that never ran in the clean pass."""
    measurement = measure_phase(clean, phase)
    if measurement is None:
        return None
    work = median_step_work(record, clean.rounds, phase)
    rates = median_rates(clean.rounds, record.ceilings, phase)
    fraction = None
    if work is not None and rates is not None:
        fraction = step_roof_fraction(record, clean.rounds, phase, work)
        rates = median_step_rates(rates, work, measurement.step_s, fraction)
    splits = None
    if work is not None:
        splits = split_phase(record, clean.rounds, grouped.rounds, phase, work, rates)
    return PhaseCase(
        phase=phase,
        measurement=measurement,
        clean=clean,
        grouped=grouped,
        rates=rates,
        work=work,
        splits=splits,
        roof_fraction=fraction,
        missing_formulas=() if work is None else formulas_missing(record, work.cost.shape),
    )


def unmapped_fraction(splits: PhaseSplits, rates: Rates) -> float:
    """Share of the step in groups without a cost, plus the roof time of groups never timed."""
    step, work = splits.center, splits.work
    costed = {op.group for op in work.cost.ops}
    uncosted_s = sum(split.time_s for group, split in step.groups.items() if group not in costed)
    untimed = [op for op in work.cost.ops if op.group not in step.groups]
    return (uncosted_s + link_time_s(untimed, rates, work.cache_bytes)) / step.step_s
