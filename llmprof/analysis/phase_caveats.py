"""What a reader must know to read the numbers of one phase correctly."""

from collections.abc import Iterable
from math import inf

from llmprof import units
from llmprof.analysis.ledger_checks import MAX_GROUPED_SCALE
from llmprof.analysis.op_roof import roof_bytes
from llmprof.analysis.phase_case import PhaseCase, unmapped_fraction
from llmprof.analysis.rates import distinct_readings, dtypes_without_ceiling
from llmprof.analysis.sm_clock import clock_caveats
from llmprof.analysis.statistics import CONFIDENCE, FEW_SAMPLES, interval_rank
from llmprof.schema.measurement import Caveat
from llmprof.schema.report import Roof

NARROW_DTYPES = ("bf16", "fp16", "int8", "fp8")
FAST_PATH = 1.5
"""Times the fp32 matmul ceiling that a narrower dtype reaches at least where it has instructions of its
own: between no gain and the factor of two that half the width is good for."""
NOTABLE_SHARE = 0.01
"""A negative loss below this share of the step is noise."""


def phase_caveats(case: PhaseCase, roof: Roof | None) -> Iterable[Caveat]:
    yield from _few_rounds(case)
    yield from _no_groups(case)
    yield from _scale(case)
    yield from _unmapped(case)
    yield from _above_roof(case)
    yield from _negative_losses(case)
    yield from _cache_resident(case, roof)
    yield from _without_ceiling(case)
    yield from _without_formula(case)
    yield from _without_fast_path(case)
    yield from clock_caveats(case.clean.rounds, case.phase)


def _few_rounds(case: PhaseCase) -> Iterable[Caveat]:
    """By the pass that has fewer: shares and ledger rest on the grouped one."""
    counts = {"clean": case.measurement.num_rounds}
    if case.splits is not None:
        counts["grouped"] = case.splits.num_grouped
    fewest = min(counts.values())
    if fewest >= FEW_SAMPLES:
        return
    _, covered = interval_rank(fewest, CONFIDENCE)
    passes = " and ".join(f"{rounds} {name}" for name, rounds in counts.items())
    reach = f"are min to max and cover {units.percent(covered)}" if covered else "say nothing"
    yield Caveat(
        code="few-rounds",
        message=f"{passes} {'round' if [*counts.values()] == [1] else 'rounds'}: intervals {reach}",
        remedy=f"Set measure.rounds to at least {FEW_SAMPLES}.",
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
    elif case.splits.work.fixed_cost.ops is None:
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


def _negative_losses(case: PhaseCase) -> Iterable[Caveat]:
    """By the first reason that holds: the link alone, alpha x ops alone, or both together."""
    if case.splits is None:
        return
    words = {
        "above-roof": "faster than their roof",
        "alpha": "the fixed cost of {} per op, measured apart, is more than these ops take",
        "both": "the fixed cost of {} per op, measured apart, and the link together are more "
        "than these ops take",
    }
    names: dict[tuple[str, float], list[str]] = {}
    for group, split in case.splits.center.groups.items():
        if split.loss_s < -NOTABLE_SHARE * case.splits.center.step_s:
            why = "alpha" if split.fixed_cost_s > split.time_s else "both"
            why = "above-roof" if split.link_s > split.time_s else why
            alpha_s = case.splits.work.fixed_cost.alpha_of(group) if why != "above-roof" else 0.0
            names.setdefault((why, alpha_s), []).append(group.label)
    for (why, alpha_s), groups in names.items():
        yield Caveat(
            code="above-roof" if why == "above-roof" else "fixed-cost-high",
            message=f"{', '.join(groups)}: {words[why].format(units.seconds(alpha_s))}; their loss is shown as it is, below zero",
            phase=case.phase,
        )


def _cache_resident(case: PhaseCase, roof: Roof | None) -> Iterable[Caveat]:
    if case.work is None or case.work.cache_bytes is None or roof is None:
        return
    cache_bytes = case.work.cache_bytes
    required = roof_bytes(case.work.cost.ops, cache_bytes)
    distinct = min(required, _streamed_bytes(case))
    if 0 < distinct < cache_bytes:
        again = ", the same ones again and again" if distinct < required else ""
        yield Caveat(
            code="cache-resident",
            message=f"a step reads {units.byte_count(distinct)}{again}, less than the last-level cache "
            f"({units.byte_count(cache_bytes)}): the read ceiling is what a stream of this "
            f"size gets here (level: {roof.read_level})",
            phase=case.phase,
        )


def _streamed_bytes(case: PhaseCase) -> float:
    """Of the stream that the read ceiling was taken over: as large as the step's working set."""
    readings = distinct_readings(case.clean.rounds)
    return min((one.read_buffer_bytes for one in readings), default=inf)


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


def _without_formula(case: PhaseCase) -> Iterable[Caveat]:
    if case.missing_formulas:
        yield Caveat(
            code="no-flop-formula",
            message=f"no FLOP formula for {', '.join(case.missing_formulas)}, which looks like matrix "
            "work: no FLOP/s is given",
            remedy="Register one with torch (torch.utils.flop_counter.register_flop_formula).",
            phase=case.phase,
        )


def _without_fast_path(case: PhaseCase) -> Iterable[Caveat]:
    """Half the bits should multiply about twice as fast: the vectors hold twice as many numbers."""
    if case.work is None or case.rates is None:
        return
    wide = case.rates.known_flops_per_s("fp32")
    for dtype in sorted({op.compute_dtype for op in case.work.cost.ops if op.flops}):
        rate = case.rates.known_flops_per_s(dtype)
        if dtype not in NARROW_DTYPES or wide is None or rate is None or rate >= FAST_PATH * wide:
            continue
        yield Caveat(
            code="dtype-without-fast-path",
            message=f"{dtype} has no fast path here: its matmul ceiling is "
            f"{units.flops_per_s(rate)}, that of fp32 {units.flops_per_s(wide)}",
            remedy="Compare the dtypes in `llmprof ceilings`.",
            phase=case.phase,
        )
