"""What must hold before a verdict is spoken; each check is evidence, each failure a reason."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from llmprof import units
from llmprof.analysis.limits import DOMINANT_SHARE, is_firm
from llmprof.analysis.phase_case import PhaseCase, unmapped_fraction
from llmprof.analysis.rates import dtypes_without_ceiling, median_disagreement
from llmprof.analysis.sentences import LIMIT_WORDS
from llmprof.analysis.step_work import counted_step
from llmprof.analysis.validity import MAX_REJECTED_FRACTION, RoundSelection
from llmprof.schema.ceilings import CeilingReading
from llmprof.schema.measurement import Estimate
from llmprof.schema.run import Round, RunRecord
from llmprof.schema.verdict import Evidence, Limit, LimitShare

MIN_ROUNDS = 3
MAX_STEP_SPREAD = 0.10
MAX_READING_DISAGREEMENT = 0.25
MAX_GROUPED_SCALE = 1.15
MAX_UNMAPPED_FRACTION = 0.05


@dataclass(frozen=True, slots=True)
class Check:
    """A statement that was checked, and what to say where it does not hold."""

    statement: str
    observed: float
    threshold: float
    holds: bool
    reason: str

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
        _enough_rounds(case),
        *(_few_rejected(name, selection) for name, selection in passes.items() if selection.rounds),
        _steady(case),
        _settled(record),
    )


def ledger_checks(
    record: RunRecord, case: PhaseCase, sides: Sequence[Limit], shares: Sequence[LimitShare]
) -> tuple[Check, ...]:
    """Whether the split of the step carries the answer that it points to."""
    if case.splits is None or case.rates is None:
        return ()
    checks = [_grouped_scale(case.splits.grouped_scale)]
    checks.append(_mapped(unmapped_fraction(case.splits, case.rates)))
    checks += [check for side in sides for check in _readings_agree(case.clean.rounds, side)]
    if Limit.COMPUTE in sides:
        checks += [_all_flops_known(record, case), _all_ceilings_known(case)]
    checks.append(_firm(shares))
    return tuple(checks)


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


def _enough_rounds(case: PhaseCase) -> Check:
    rounds = case.measurement.num_rounds
    return Check(
        statement="enough rounds",
        observed=rounds,
        threshold=MIN_ROUNDS,
        holds=rounds >= MIN_ROUNDS,
        reason=f"{rounds} usable {'round' if rounds == 1 else 'rounds'}, {MIN_ROUNDS} are needed",
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
        statement="steps spread little (IQR over median)",
        observed=spread,
        threshold=MAX_STEP_SPREAD,
        holds=spread <= MAX_STEP_SPREAD,
        reason=f"the steps spread by {units.percent(spread)} (IQR over median), more than "
        f"{units.percent(MAX_STEP_SPREAD)}",
    )


def _settled(record: RunRecord) -> Check:
    return Check(
        statement="warm-up settled",
        observed=float(record.warmup.settled),
        threshold=1.0,
        holds=record.warmup.settled,
        reason=f"step times had not settled after {record.warmup.rounds} warm-up rounds",
    )


def _grouped_scale(scale: float) -> Check:
    return Check(
        statement="the grouped pass runs like the clean one (clean step over grouped step)",
        observed=scale,
        threshold=MAX_GROUPED_SCALE,
        holds=1 / MAX_GROUPED_SCALE <= scale <= MAX_GROUPED_SCALE,
        reason=f"a clean step takes {units.ratio(scale)} a grouped one, so the groups' times are "
        "not those of the clean step",
    )


def _mapped(fraction: float) -> Check:
    return Check(
        statement="groups are both timed and costed",
        observed=fraction,
        threshold=MAX_UNMAPPED_FRACTION,
        holds=fraction <= MAX_UNMAPPED_FRACTION,
        reason=f"{units.percent(fraction)} of the step is in groups that were timed or costed, but "
        "not both",
    )


def _readings_agree(rounds: Sequence[Round], side: Limit) -> Iterator[Check]:
    """No check where no round has two readings: there is nothing to compare."""
    name, value = _CEILINGS[side]
    gap = median_disagreement(rounds, value)
    if gap is not None:
        yield Check(
            statement=f"{name} readings before and after a round agree",
            observed=gap,
            threshold=MAX_READING_DISAGREEMENT,
            holds=gap <= MAX_READING_DISAGREEMENT,
            reason=f"the {name} readings before and after a round differ by "
            f"{units.percent(gap)} in the median",
        )


def _all_flops_known(record: RunRecord, case: PhaseCase) -> Check:
    shape = None if case.work is None else case.work.cost.shape
    counted = None if shape is None else counted_step(record, shape)
    missing = [op.op for op in counted.ops if op.missing_formula] if counted is not None else []
    return Check(
        statement="every matrix operator that ran has a FLOP formula",
        observed=len(missing),
        threshold=0.0,
        holds=not missing,
        reason=f"no FLOP formula for {', '.join(missing)}",
    )


def _all_ceilings_known(case: PhaseCase) -> Check:
    missing: tuple[str, ...] = ()
    if case.work is not None and case.rates is not None:
        missing = dtypes_without_ceiling(case.work.cost, case.rates)
    return Check(
        statement="every dtype computed in has a measured matmul ceiling",
        observed=len(missing),
        threshold=0.0,
        holds=not missing,
        reason=f"no matmul ceiling was measured for {', '.join(missing)}",
    )


def _firm(shares: Sequence[LimitShare]) -> Check:
    largest = shares[0].share
    named = ", ".join(
        f"{LIMIT_WORDS[one.limit]} {units.percent(one.share.low)} to "
        f"{units.percent(one.share.high)}"
        for one in shares[:2]
    )
    return Check(
        statement="the answer is the same over the whole interval of the shares",
        observed=largest.point,
        threshold=DOMINANT_SHARE,
        holds=is_firm(shares),
        reason=f"the shares straddle the decision ({named})",
    )


_CEILINGS: dict[Limit, tuple[str, Callable[[CeilingReading], float]]] = {
    Limit.MEMORY: ("read bandwidth", lambda reading: reading.read_bytes_per_s),
    Limit.COMPUTE: ("matmul", lambda reading: reading.matmul_flops_per_s),
}
