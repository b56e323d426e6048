"""What a reader must know to read the numbers correctly, each with what could be done about it."""

from collections.abc import Iterable, Sequence

from llmprof import units
from llmprof.analysis.checks import MAX_GROUPED_SCALE
from llmprof.analysis.op_roof import last_level_cache_bytes
from llmprof.analysis.phase_case import PhaseCase, unmapped_fraction
from llmprof.analysis.rates import dtypes_without_ceiling
from llmprof.analysis.validity import RoundSelection
from llmprof.schema.measurement import Caveat
from llmprof.schema.report import Roof
from llmprof.schema.run import RunRecord

NOTABLE_SHARE = 0.01
"""A negative loss below this share of the step is noise."""
THROTTLING = ("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
FULL_INTERVAL_ROUNDS = 6
"""From here on min..max of independent rounds covers the median with 95 %."""


def build_caveats(
    record: RunRecord, cases: Sequence[PhaseCase], roof: Roof | None
) -> tuple[Caveat, ...]:
    """Those of the run, those of its rounds, those of each phase; each once."""
    found = [*_of_run(record, roof), *record.caveats, *record.ceilings.caveats]
    for case in cases[:1]:
        found += [*_rejected("clean", case.clean), *_rejected("grouped", case.grouped)]
        found += _throttled(case.clean)
    for case in cases:
        found += _of_phase(record, case, roof)
    return tuple({(one.code, one.phase, one.message): one for one in found}.values())


def _of_run(record: RunRecord, roof: Roof | None) -> Iterable[Caveat]:
    if record.status == "partial":
        yield Caveat(
            code="partial",
            message=f"the measurement is partial: {record.status_reason or 'it was cut short'}",
            remedy="Run it again to the end.",
        )
    if record.engine.random_weights:
        yield Caveat(
            code="random-weights",
            message="the weights are random: speed and traffic are real, the text is not",
        )
    if roof is None:
        yield Caveat(
            code="no-ceilings",
            message="no ceiling was read beside the rounds: nothing is judged",
        )
    if not record.warmup.settled:
        yield Caveat(
            code="not-settled",
            message=f"step times had not settled after {record.warmup.rounds} warm-up rounds",
            remedy="Quiet the machine, or set measure.warmup to more rounds.",
        )
    yield Caveat(
        code="counted",
        message="bytes and FLOPs are counted from shapes, no hardware counter was read: "
        "GB/s is a lower bound of the real traffic",
    )


def _throttled(selection: RoundSelection) -> Iterable[Caveat]:
    reasons = [
        {reason for reason in one.telemetry.event_reasons if reason in THROTTLING}
        for one in selection.rounds
        if one.telemetry is not None
    ]
    seen = [reason for reason in reasons if reason]
    if seen:
        names = ", ".join(sorted(set().union(*seen))).replace("_", " ")
        yield Caveat(
            code="throttled",
            message=f"the device held its clock down in {len(seen)} of {len(selection.rounds)} "
            f"rounds: {names}",
            remedy="Check cooling and power; the ceilings beside each round saw the same clock.",
        )


def _rejected(name: str, selection: RoundSelection) -> Iterable[Caveat]:
    if not selection.reasons:
        return
    why = ", ".join(sorted(set(selection.reasons.values())))
    rejected, total = len(selection.reasons), selection.num_total
    kept = "left out" if rejected < total else "invalid, and used for want of others"
    yield Caveat(
        code="contended",
        message=f"{rejected} of {total} {name} rounds are {kept}: {why}",
        remedy="Stop other programs, or give the run fewer threads (execution.threads).",
    )


def _of_phase(record: RunRecord, case: PhaseCase, roof: Roof | None) -> Iterable[Caveat]:
    yield from _few_rounds(case)
    yield from _no_groups(case)
    yield from _scale(case)
    yield from _unmapped(case)
    yield from _above_roof(case)
    yield from _cache_resident(record, case, roof)
    yield from _without_ceiling(case)


def _few_rounds(case: PhaseCase) -> Iterable[Caveat]:
    rounds = case.measurement.num_rounds
    if rounds < FULL_INTERVAL_ROUNDS:
        plural = "round" if rounds == 1 else "rounds"
        covered = units.percent(case.measurement.step_s.confidence)
        yield Caveat(
            code="few-rounds",
            message=f"{rounds} {plural}: the intervals are min to max and cover {covered}",
            remedy=f"Set measure.rounds to at least {FULL_INTERVAL_ROUNDS}.",
            phase=case.phase,
        )


def _no_groups(case: PhaseCase) -> Iterable[Caveat]:
    if case.splits is None:
        yield Caveat(
            code="no-ledger",
            message="the step is not split into parts: group times, readings or costs are missing",
            remedy="Keep 'grouped' in measure.passes.",
            phase=case.phase,
        )
    elif case.splits.work.ops is None:
        yield Caveat(
            code="ops-not-counted",
            message="operators were not counted: each call of a cost counts as one op, so the "
            "fixed cost is a lower bound",
            remedy="Keep 'counting' in measure.passes.",
            phase=case.phase,
        )


def _scale(case: PhaseCase) -> Iterable[Caveat]:
    if case.splits is None:
        return
    scale = case.splits.grouped_scale
    if not 1 / MAX_GROUPED_SCALE <= scale <= MAX_GROUPED_SCALE:
        yield Caveat(
            code="grouped-scale",
            message=f"a clean step takes {units.ratio(scale)} a grouped one: group times are scaled",
            remedy="Quiet the machine and run again.",
            phase=case.phase,
        )


def _unmapped(case: PhaseCase) -> Iterable[Caveat]:
    if case.splits is None or case.rates is None:
        return
    fraction = unmapped_fraction(case.splits, case.rates)
    if fraction > NOTABLE_SHARE:
        yield Caveat(
            code="unmapped",
            message=f"{units.percent(fraction)} of the step is in groups that were timed or "
            "costed, but not both",
            phase=case.phase,
        )


def _above_roof(case: PhaseCase) -> Iterable[Caveat]:
    fraction = case.roof_fraction
    if fraction is not None and fraction.point > 1:
        yield Caveat(
            code="above-roof",
            message=f"the step reaches {units.percent(fraction.point)} of its roof: bytes that a "
            "cache served are counted, or the ceiling was read too low",
            phase=case.phase,
        )
    if case.splits is None:
        return
    gaining = {
        group.value.replace("_", " "): split
        for group, split in case.splits.center.groups.items()
        if split.loss_s < -NOTABLE_SHARE * case.splits.center.step_s
    }
    above = [name for name, split in gaining.items() if split.link_s > split.time_s]
    cheap = [name for name in gaining if name not in above]
    if above:
        yield Caveat(
            code="above-roof",
            message=f"faster than their roof: {', '.join(above)}; their loss is shown as it is, "
            "below zero",
            phase=case.phase,
        )
    if cheap:
        alpha = units.seconds(case.splits.work.alpha_s)
        yield Caveat(
            code="fixed-cost-high",
            message=f"{', '.join(cheap)}: the fixed cost of {alpha} per op, measured apart, is "
            "more than these ops take, so their loss is below zero",
            phase=case.phase,
        )


def _cache_resident(record: RunRecord, case: PhaseCase, roof: Roof | None) -> Iterable[Caveat]:
    if case.work is None or roof is None:
        return
    required = case.work.cost.traffic.required
    cache = last_level_cache_bytes(record.environment)
    if 0 < required < cache:
        yield Caveat(
            code="cache-resident",
            message=f"a step reads {units.byte_count(required)}, less than the last-level cache "
            f"({units.byte_count(cache)}): the read ceiling is that of {roof.read_level} at this "
            "size, not of memory",
            phase=case.phase,
        )


def _without_ceiling(case: PhaseCase) -> Iterable[Caveat]:
    if case.work is None or case.rates is None:
        return
    missing = dtypes_without_ceiling(case.work.cost, case.rates)
    if missing:
        yield Caveat(
            code="dtype-without-ceiling",
            message=f"no matmul ceiling was measured for {', '.join(missing)}: judged by that of "
            f"{case.rates.matmul_dtype}",
            remedy="Run `llmprof ceilings --refresh`.",
            phase=case.phase,
        )
