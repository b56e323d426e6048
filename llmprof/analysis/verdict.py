"""The verdict of a phase: two answers, what speaks for them, or why there is none."""

from collections.abc import Sequence

from llmprof import units
from llmprof.analysis import limits
from llmprof.analysis.checks import Check, measurement_checks, not_over_counted
from llmprof.analysis.ledger_checks import ledger_checks
from llmprof.analysis.phase_case import PhaseCase
from llmprof.analysis.roof import skinny_fraction
from llmprof.analysis.sentences import inconclusive_sentence, link_clause, verdict_sentence
from llmprof.analysis.trace_checks import trace_checks
from llmprof.schema.ledger import Part
from llmprof.schema.measurement import Estimate
from llmprof.schema.ops import PhaseOps
from llmprof.schema.report import Roof
from llmprof.schema.run import RunRecord
from llmprof.schema.verdict import Evidence, Limit, Saturation, Verdict

SAME_FRACTION = 0.10
"""Of the read ceiling: half the width of a class of saturation."""
_MEMORY_PARTS = (Part.MEMORY_WEIGHTS, Part.MEMORY_KV, Part.MEMORY_OTHER)


def judge_phase(
    record: RunRecord, case: PhaseCase, roof: Roof | None, ops: PhaseOps | None = None
) -> Verdict:
    """What limits the phase and how saturated that link is; `inconclusive` is an answer.

    `ops` are those of the tracing pass: a ledger that they contradict is no ledger.
    """
    missing = _missing(case, roof)
    if case.splits is None or roof is None:
        return _unsplit(record, case, missing)
    shares = limits.limit_shares(case.splits)
    limit = limits.what_limits(shares)
    sides = limits.limiting_sides(limit, shares)
    fraction = limits.saturation_fraction(case.splits, sides)
    checks = (
        *measurement_checks(record, case),
        *ledger_checks(record, case, limit, sides, shares, fraction),
        *trace_checks(ops, case.splits.device_s),
        *_over_counted(case.roof_fraction, fraction),
    )
    failed = tuple(check.reason for check in checks if not check.holds)
    saturation = Saturation.UNKNOWN if failed else limits.saturation_of(fraction)
    sentence = (
        inconclusive_sentence(case.phase, failed)
        if failed
        else verdict_sentence(case.phase, limit, shares, saturation, _link(case, sides, fraction))
    )
    return Verdict(
        phase=case.phase,
        limit=Limit.INCONCLUSIVE if failed else limit,
        limits=shares,
        parts_named=limits.named_parts(case.splits.center),
        saturation=saturation,
        saturation_fraction=fraction,
        roof_fraction=case.roof_fraction,
        sentence=sentence,
        reasons=failed or _modifiers(fraction),
        evidence=(
            *(check.evidence() for check in checks),
            *_kernel_evidence(case, sides, fraction),
        ),
    )


def _kernel_evidence(
    case: PhaseCase, sides: Sequence[Limit], fraction: Estimate | None
) -> tuple[Evidence, ...]:
    """Whether the matmul kernel by itself explains how busy the memory link is."""
    alone = _skinny(case)
    if Limit.MEMORY not in sides or fraction is None or alone is None:
        return ()
    gap = abs(alone - fraction.point)
    return (
        Evidence(
            statement="the skinny matmul kernel alone explains the memory side (distance of their "
            "fractions of the read ceiling)",
            observed=gap,
            threshold=SAME_FRACTION,
            supports=gap <= SAME_FRACTION,
        ),
    )


def _missing(case: PhaseCase, roof: Roof | None) -> tuple[str, ...]:
    """What a split needs and the run does not have."""
    reasons = []
    if roof is None:
        reasons.append("no ceiling was read beside the rounds, so there is no roof to judge by")
    if case.work is None:
        reasons.append("the work of a step is not known: the run has neither a model nor a cost")
    if roof is not None and case.work is not None and case.splits is None:
        reasons.append("no grouped pass, so the step's time is not split into op groups")
    return tuple(reasons)


def _unsplit(record: RunRecord, case: PhaseCase, missing: Sequence[str]) -> Verdict:
    """Without a split there is no answer; the whole step's roof fraction still stands."""
    checks = (*measurement_checks(record, case), *_over_counted(case.roof_fraction, None))
    reasons = (*missing, *(check.reason for check in checks if not check.holds))
    return Verdict(
        phase=case.phase,
        limit=Limit.INCONCLUSIVE,
        limits=(),
        parts_named=(),
        saturation=Saturation.UNKNOWN,
        saturation_fraction=None,
        roof_fraction=case.roof_fraction,
        sentence=inconclusive_sentence(case.phase, reasons),
        reasons=reasons,
        evidence=tuple(check.evidence() for check in checks),
    )


def _over_counted(step: Estimate | None, link: Estimate | None) -> tuple[Check, ...]:
    named = (("the whole step", step), ("the limiting link", link))
    return tuple(not_over_counted(name, one) for name, one in named if one is not None)


def _link(case: PhaseCase, sides: Sequence[Limit], fraction: Estimate | None) -> str | None:
    if fraction is None or case.splits is None or case.rates is None:
        return None
    parts = case.splits.center.parts_s()
    return link_clause(
        sides,
        fraction.point,
        case.rates,
        dtypes=sorted({op.compute_dtype for op in case.splits.work.cost.ops if op.flops}),
        main_part=max(_MEMORY_PARTS, key=lambda part: parts[part]),
        skinny=_skinny(case),
    )


def _skinny(case: PhaseCase) -> float | None:
    """The bare kernel's fraction, where it was read at the rows of this phase's steps."""
    rows = None if case.work is None else case.work.cost.shape.new_tokens
    reached = skinny_fraction(case.clean.rounds, rows)
    return None if reached is None else reached.point


def _modifiers(fraction: Estimate | None) -> tuple[str, ...]:
    if fraction is None or limits.saturation_is_firm(fraction):
        return ()
    return (
        f"the saturation's interval, {units.percent(fraction.low)} to "
        f"{units.percent(fraction.high)}, reaches another class",
    )
