"""Whether the split of a step carries the answer that it points to."""

from collections.abc import Callable, Iterator, Sequence

from llmprof import units
from llmprof.analysis.checks import Check, not_over_counted
from llmprof.analysis.limits import MIN_CONFIDENCE, SATURATED, answers, is_firm
from llmprof.analysis.phase_case import PhaseCase, unmapped_fraction
from llmprof.analysis.rates import dtypes_without_ceiling, median_disagreement
from llmprof.analysis.sentences import LIMIT_WORDS
from llmprof.analysis.splits import RUN_AHEAD, PhaseSplits
from llmprof.analysis.step_split import StepSplit
from llmprof.analysis.step_work import counted_step
from llmprof.schema.ceilings import CeilingReading
from llmprof.schema.cost import OpGroup
from llmprof.schema.ledger import Side
from llmprof.schema.measurement import Estimate
from llmprof.schema.run import Round, RunRecord
from llmprof.schema.verdict import Limit, LimitShare

MAX_READING_DISAGREEMENT = 0.25
MAX_GROUPED_SCALE = 1.15
MAX_UNMAPPED_FRACTION = 0.05
MAX_GROUP_FRACTION = 1.05
"""Of the matmul ceiling: a product a little faster than the best shape of the probe is no error."""
MIN_JUDGED_SHARE = 0.05
"""Of the step: a smaller group that is counted wrong cannot turn the answer."""


def ledger_checks(
    record: RunRecord,
    case: PhaseCase,
    limit: Limit,
    sides: Sequence[Limit],
    shares: Sequence[LimitShare],
    fraction: Estimate | None,
) -> tuple[Check, ...]:
    """Checks of the answer `limit`; `fraction` is the saturation of its `sides`."""
    if case.splits is None or case.rates is None:
        return ()
    checks = [_grouped_scale(case.splits.grouped_scale)]
    checks.append(_mapped(unmapped_fraction(case.splits, case.rates)))
    checks += [check for side in sides for check in _readings_agree(case.clean.rounds, side)]
    if Limit.COMPUTE in sides:
        checks += [_all_flops_known(record, case), _all_ceilings_known(case)]
    checks += _products_below_roof(case.splits)
    checks += _device_did_not_wait(case.splits, limit, fraction)
    checks.append(_firm(shares))
    return tuple(checks)


def _grouped_scale(scale: float) -> Check:
    return Check(
        statement="the grouped pass runs like the clean one (longer step over shorter)",
        observed=max(scale, 1 / scale),
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


def _products_below_roof(splits: PhaseSplits) -> Iterator[Check]:
    """Group by group, since one that is counted too high hides the loss of the others."""
    fractions = {
        group: splits.estimate(_fraction_of(group))
        for group, split in splits.center.groups.items()
        if split.side == Side.COMPUTE and split.time_s >= MIN_JUDGED_SHARE * splits.center.step_s
    }
    above = {
        group: fraction
        for group, fraction in fractions.items()
        if fraction.point > MAX_GROUP_FRACTION
    }
    for group, fraction in above.items():
        yield not_over_counted(f"the {group.label}", fraction)
    if fractions and not above:
        largest = max(fraction.point for fraction in fractions.values())
        yield Check(
            statement="no op group multiplies above the matmul ceiling (largest fraction of it)",
            observed=largest,
            threshold=MAX_GROUP_FRACTION,
            holds=True,
        )


def _fraction_of(group: OpGroup) -> Callable[[StepSplit], float]:
    return lambda split: split.fraction_of((group,))


def _device_did_not_wait(
    splits: PhaseSplits, limit: Limit, fraction: Estimate | None
) -> Iterator[Check]:
    """The device's clock runs from event to event, and on while the device waits for the host.

    Its time is that of its kernels only where the host ran ahead, or where a link was so busy that
    there was no room for waiting. A host that limits needs no such proof, nor do times of a device
    that was held back until each step was enqueued.
    """
    if splits.device_s is None or splits.enqueue_s is None or limit == Limit.HOST:
        return
    if splits.back_to_back:
        return
    ahead = splits.enqueue_s / splits.device_s
    if ahead <= RUN_AHEAD:
        yield Check(
            statement="the host ran ahead of the device (host time over device time of a step)",
            observed=ahead,
            threshold=RUN_AHEAD,
            holds=True,
        )
        return
    busy = 0.0 if fraction is None else fraction.point
    yield Check(
        statement="the limiting link is saturated, so the device's time holds no wait for the host",
        observed=busy,
        threshold=SATURATED,
        holds=busy >= SATURATED,
        reason=f"host and kernels cannot be told apart: the host needs {units.percent(ahead)} of "
        "the device's time, which runs on while the device waits for the host, and no link is "
        "saturated",
    )


def _firm(shares: Sequence[LimitShare]) -> Check:
    confidence = shares[0].share.confidence
    if confidence < MIN_CONFIDENCE:
        return Check(
            statement="the shares have intervals (their confidence)",
            observed=confidence,
            threshold=MIN_CONFIDENCE,
            holds=False,
            reason="the shares rest on a single round and have no interval",
        )
    named = ", ".join(
        f"{LIMIT_WORDS[one.limit]} {units.percent(one.share.low)} to "
        f"{units.percent(one.share.high)}"
        for one in shares[:2]
    )
    return Check(
        statement="one answer alone over the whole interval of the shares (number of answers)",
        observed=len(answers(shares)),
        threshold=1.0,
        holds=is_firm(shares),
        reason=f"the shares straddle the decision ({named})",
    )


_CEILINGS: dict[Limit, tuple[str, Callable[[CeilingReading], float]]] = {
    Limit.MEMORY: ("read bandwidth", lambda reading: reading.read_bytes_per_s),
    Limit.COMPUTE: ("matmul", lambda reading: reading.matmul_flops_per_s),
}
