"""Metric by metric: both sides, their ratio, and whether a difference is shown."""

from collections.abc import Mapping, Sequence

from llmprof.analysis.metrics import EXACT, PEAKS, TIMED, exact_counters, report_estimates
from llmprof.analysis.paired import holm_adjusted
from llmprof.analysis.unpaired import (
    MIN_LAUNCHES,
    launch_ratio,
    launches_needed,
    least_p_value,
    p_value_larger,
)
from llmprof.schema.comparison import Basis, Change, MetricChange
from llmprof.schema.measurement import Estimate
from llmprof.schema.metric import Better, Metric, MetricKind
from llmprof.schema.report import Report

SIGNIFICANCE = 0.05
"""Two-sided; of saved runs over all timed metrics together."""


def metric_changes(
    baseline: Sequence[Report], candidate: Sequence[Report], floors: Mapping[str, float]
) -> tuple[MetricChange, ...]:
    """Every metric that a side has: timed ones by their launches, exact ones by their difference.

    Args:
        baseline: launches of one side.
        candidate: launches of the other.
        floors: metric -> relative difference that two launches of the same code have here.
    """
    base = [report_estimates(one) for one in baseline]
    cand = [report_estimates(one) for one in candidate]
    changes = [_timed(metric, base, cand, floors.get(metric.name)) for metric in TIMED]
    timed = tuple(change for change in changes if change is not None)
    return (*_judged_together(timed), *exact_changes(baseline[0], candidate[0]))


def launches_to_show(changes: Sequence[MetricChange], baseline: int, candidate: int) -> int | None:
    """A side, to show a difference in one of so many timed metrics; None where there are as many."""
    timed = [one for one in changes if one.metric.kind is MetricKind.TIMED]
    tests = sum(one.ratio is not None for one in timed)
    enough = min(baseline, candidate) >= MIN_LAUNCHES
    if not tests or (enough and 2 * least_p_value(baseline, candidate) * tests <= SIGNIFICANCE):
        return None
    return launches_needed(SIGNIFICANCE / 2 / tests)


def exact_changes(
    baseline: Report, candidate: Report, *, peaks: bool = True
) -> tuple[MetricChange, ...]:
    """What two runs hold and start, count by count; `peaks` adds their most memory."""
    counts = exact_counters(baseline.run), exact_counters(candidate.run)
    changes = [_exact(metric, *(side.get(metric.name) for side in counts)) for metric in EXACT]
    if peaks:
        changes += [_peak(metric, *(side.get(metric.name) for side in counts)) for metric in PEAKS]
    return tuple(change for change in changes if change is not None)


def _timed(
    metric: Metric,
    baseline: Sequence[Mapping[str, Estimate]],
    candidate: Sequence[Mapping[str, Estimate]],
    floor: float | None,
) -> MetricChange | None:
    base = [side[metric.name] for side in baseline if metric.name in side]
    cand = [side[metric.name] for side in candidate if metric.name in side]
    if not base and not cand:
        return None
    change = MetricChange(
        metric=metric,
        baseline=_middle(base),
        candidate=_middle(cand),
        ratio=None,
        basis=Basis.ONE_LAUNCH,
        change=Change.NOT_SHOWN,
        noise_floor=floor,
    )
    points = [one.point for one in base], [one.point for one in cand]
    if not base or not cand or min(*points[0], *points[1]) <= 0:
        return change
    if min(len(base), len(cand)) < MIN_LAUNCHES:
        return change.model_copy(update={"ratio": _ratio_of(base, cand)})
    return change.model_copy(update=_tested(*points))


def _middle(launches: Sequence[Estimate]) -> Estimate | None:
    """The launch in the middle, with its own interval."""
    ordered = sorted(launches, key=lambda one: one.point)
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def _ratio_of(baseline: Sequence[Estimate], candidate: Sequence[Estimate]) -> Estimate:
    """Of the middle launches; the interval holds every ratio that both intervals allow."""
    base, cand = _middle(baseline), _middle(candidate)
    assert base is not None
    assert cand is not None
    return Estimate(
        point=cand.point / base.point,
        low=cand.low / base.high,
        high=cand.high / base.low if base.low > 0 else cand.high / base.point,
        confidence=max(0.0, base.confidence + cand.confidence - 1),
        num_samples=min(base.num_samples, cand.num_samples),
    )


def _tested(baseline: Sequence[float], candidate: Sequence[float]) -> dict[str, object]:
    larger = p_value_larger(baseline, candidate)
    smaller = p_value_larger(candidate, baseline)
    return {
        "ratio": launch_ratio(baseline, candidate),
        "p_value": min(1.0, 2 * min(larger, smaller)),
        "basis": Basis.LAUNCHES,
    }


def _judged_together(changes: Sequence[MetricChange]) -> tuple[MetricChange, ...]:
    """A difference is shown where its p is small for one of so many that were looked at."""
    p_values = {one.metric.name: one.p_value for one in changes if one.p_value is not None}
    adjusted = dict(zip(p_values, holm_adjusted(tuple(p_values.values())), strict=True))
    return tuple(_judged(one, adjusted.get(one.metric.name)) for one in changes)


def _judged(change: MetricChange, p_adjusted: float | None) -> MetricChange:
    if p_adjusted is None or change.ratio is None:
        return change
    shown = p_adjusted <= SIGNIFICANCE
    found = direction(change.metric, change.ratio.point) if shown else Change.NOT_SHOWN
    return change.model_copy(update={"p_adjusted": p_adjusted, "change": found})


def direction(metric: Metric, ratio: float) -> Change:
    """Of a difference that is shown."""
    return Change.WORSE if (ratio > 1) == (metric.better is Better.LOWER) else Change.BETTER


def _exact(metric: Metric, baseline: float | None, candidate: float | None) -> MetricChange | None:
    if baseline is None and candidate is None:
        return None
    change = Change.NOT_SHOWN
    if baseline is not None and candidate is not None:
        change = Change.EQUAL
        if baseline != candidate:
            change = Change.WORSE if candidate > baseline else Change.BETTER
    return MetricChange(
        metric=metric,
        baseline=_count(baseline),
        candidate=_count(candidate),
        ratio=_count(candidate / baseline if baseline and candidate is not None else None),
        basis=Basis.EXACT,
        change=change,
    )


def _peak(metric: Metric, baseline: float | None, candidate: float | None) -> MetricChange | None:
    """One number per process, and nothing to tell its noise by."""
    change = _exact(metric, baseline, candidate)
    if change is None:
        return None
    return change.model_copy(update={"basis": Basis.ONE_LAUNCH, "change": Change.NOT_SHOWN})


def _count(value: float | None) -> Estimate | None:
    if value is None:
        return None
    return Estimate(point=value, low=value, high=value, confidence=0.0, num_samples=1)
