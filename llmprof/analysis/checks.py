"""What must hold of a measurement before it is judged; each check is evidence, each failure a reason."""

from collections.abc import Iterator
from dataclasses import dataclass

from llmprof import units
from llmprof.analysis.phase_case import PhaseCase
from llmprof.analysis.validity import MAX_REJECTED_FRACTION, RoundSelection
from llmprof.schema.measurement import Estimate
from llmprof.schema.run import RunRecord
from llmprof.schema.verdict import Evidence

RANKS_SHARE_MEMORY = "ranks-share-memory"
"""Caveat of a run whose ranks are processes of one machine."""
MIN_ROUNDS = 3
"""Of the clean and of the grouped pass: with fewer, min..max covers the median with 50 % at most."""
MAX_STEP_SPREAD = 0.10
"""Of single steps, as `phases.step_spread` has it. Half of a quiet machine's steps lie within 1 to 3 %;
at 10 % the medians of a few rounds no longer tell one class of saturation from the next."""


@dataclass(frozen=True, slots=True)
class Check:
    """A statement that was checked, and what to say where it does not hold."""

    statement: str
    observed: float
    threshold: float
    holds: bool
    reason: str = ""
    """Needed where it does not hold."""

    def evidence(self) -> Evidence:
        return Evidence(
            statement=self.statement,
            observed=self.observed,
            threshold=self.threshold,
            supports=self.holds,
        )


def measurement_checks(record: RunRecord, case: PhaseCase) -> tuple[Check, ...]:
    """Whether the steps of a phase were measured well enough to be judged at all."""
    passes = {"clean": case.clean, "grouped": case.grouped}
    return (
        *_enough_rounds(case),
        *(_few_rejected(name, selection) for name, selection in passes.items() if selection.rounds),
        _steady(case),
        *_settled(record),
        *_own_memory(record),
    )


def not_over_counted(name: str, fraction: Estimate) -> Check:
    """More than all of a roof, beyond the interval: bytes or FLOPs are counted that never moved."""
    return Check(
        statement=f"{name} is not above the roof beyond its interval",
        observed=fraction.low,
        threshold=1.0,
        holds=fraction.low <= 1.0,
        reason=f"{name} is {units.percent(fraction.point)} of the roof, above it even at the low "
        f"end ({units.percent(fraction.low)}): work is over-counted or the ceiling was read too low",
    )


def _enough_rounds(case: PhaseCase) -> Iterator[Check]:
    """Of a pass without any, the verdict says so itself."""
    counts = {"clean": case.measurement.num_rounds}
    if case.splits is not None:
        counts["grouped"] = case.splits.num_grouped
    for name, rounds in counts.items():
        yield Check(
            statement=f"enough {name} rounds",
            observed=rounds,
            threshold=MIN_ROUNDS,
            holds=rounds >= MIN_ROUNDS,
            reason=f"{rounds} usable {name} {'round' if rounds == 1 else 'rounds'}, "
            f"{MIN_ROUNDS} are needed",
        )


def _few_rejected(name: str, selection: RoundSelection) -> Check:
    fraction = selection.rejected_fraction
    why = ", ".join(sorted(set(selection.reasons.values())))
    return Check(
        statement=f"few {name} rounds rejected",
        observed=fraction,
        threshold=MAX_REJECTED_FRACTION,
        holds=fraction <= MAX_REJECTED_FRACTION,
        reason=f"{units.percent(fraction)} of the {name} rounds were contended or throttled: {why}",
    )


def _steady(case: PhaseCase) -> Check:
    spread = case.measurement.step_spread
    return Check(
        statement="single steps spread little",
        observed=spread,
        threshold=MAX_STEP_SPREAD,
        holds=spread <= MAX_STEP_SPREAD,
        reason=f"single steps spread by {units.percent(spread)}, more than "
        f"{units.percent(MAX_STEP_SPREAD)}",
    )


def _own_memory(record: RunRecord) -> Iterator[Check]:
    """Nothing to hold for a process that is alone, or has a device of its own."""
    shared = [one for one in record.caveats if one.code == RANKS_SHARE_MEMORY]
    if shared:
        yield Check(
            statement="each rank has the memory to itself whose ceilings it is judged by",
            observed=record.settings.parallel.tensor,
            threshold=1.0,
            holds=False,
            reason=f"the {record.settings.parallel.tensor} ranks work on one machine, whose ceilings "
            "the first of them read alone: what each can reach beside the others is not known",
        )


def _settled(record: RunRecord) -> Iterator[Check]:
    """Nothing to hold where it was not tested: that is a caveat, and no evidence."""
    settled = record.warmup.settled
    if settled is not None:
        yield Check(
            statement="warm-up settled",
            observed=float(settled),
            threshold=1.0,
            holds=settled,
            reason=f"step times had not settled after {record.warmup.rounds} warm-up rounds",
        )
