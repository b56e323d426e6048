"""`gate check`: a saved run against a saved baseline, and against absolute budgets."""

from collections.abc import Mapping, Sequence
from math import expm1, log, log1p

from llmprof import units
from llmprof.analysis.gate_looks import TimedRule
from llmprof.analysis.gate_verdict import without_figure
from llmprof.analysis.metrics import (
    exact_counters,
    metric_named,
    report_estimates,
    round_metric_names,
)
from llmprof.analysis.paired import holm
from llmprof.analysis.unpaired import (
    MIN_LAUNCHES,
    launch_ratio,
    launches_needed,
    least_p_value,
    p_value_larger,
)
from llmprof.analysis.validity import MAX_REJECTED_FRACTION, select_rounds
from llmprof.schema.gate_result import Check, GateVerdict, Judgement
from llmprof.schema.measurement import Estimate
from llmprof.schema.metric import Better
from llmprof.schema.report import Report
from llmprof.schema.settings import GateBudget

ALPHA = 0.025
"""One-sided, over all timed metrics together."""
FLOORS_APART = 2.0
"""A single launch a side must differ by so many noise floors: the floor was measured on another day."""

Points = tuple[list[float], list[float]]
"""A metric's medians: one per launch of the baseline, one per launch of the candidate."""


def judge_saved(
    rules: Sequence[TimedRule],
    baseline: Sequence[Report],
    candidate: Sequence[Report],
    floors: Mapping[str, float],
    *,
    asked_for: bool = False,
) -> list[Judgement]:
    """Timed metrics of saved launches: weaker than paired rounds, and more often inconclusive.

    Args:
        rules: metrics with their tolerances.
        baseline: its launches.
        candidate: its launches.
        floors: metric -> relative difference that two launches of the same code have here.
        asked_for: a metric that a side does not have is inconclusive; else it is left out.
    """
    points = {rule.metric.name: _points(rule.metric.name, baseline, candidate) for rule in rules}
    present = [rule for rule in rules if all(points[rule.metric.name])]
    tests = [_p_value(rule, points[rule.metric.name]) for rule in present]
    shown = holm(tests, ALPHA)
    level = ALPHA / max(len(present), 1)
    return [
        _judged(
            rule,
            points[rule.metric.name],
            p_value,
            floors.get(rule.metric.name),
            level=level,
            shown=worse,
        )
        for rule, p_value, worse in zip(present, tests, shown, strict=True)
    ] + [
        without_figure(rule.metric, rule.tolerance)
        for rule in rules
        if asked_for and rule not in present
    ]


def unstable(reports: Sequence[Report]) -> str | None:
    """Why nothing may be said of these runs; None where the machine was quiet enough."""
    for report in reports:
        rejected = select_rounds(report.run.rounds).rejected_fraction
        if rejected > MAX_REJECTED_FRACTION:
            return f"{units.percent(rejected)} of the rounds of run {report.run.id} were spoiled"
    return None


def made_unstable(judgements: Sequence[Judgement], reason: str) -> list[Judgement]:
    """Every timed judgement without a verdict; counts stand."""
    return [
        one
        if one.check in (Check.EXACT, Check.PEAK)
        else one.model_copy(update={"verdict": GateVerdict.UNSTABLE, "reason": reason})
        for one in judgements
    ]


def _points(name: str, baseline: Sequence[Report], candidate: Sequence[Report]) -> Points:
    def of(reports: Sequence[Report]) -> list[float]:
        found = [report_estimates(report).get(name) for report in reports]
        return [one.point for one in found if one is not None and one.point > 0]

    return of(baseline), of(candidate)


def _p_value(rule: TimedRule, points: Points) -> float:
    """One-sided, of "worse"; 1 where too few launches can show anything."""
    base, cand = points
    if min(len(base), len(cand)) < MIN_LAUNCHES:
        return 1.0
    if rule.metric.better is Better.LOWER:
        return p_value_larger(base, cand)
    return p_value_larger(cand, base)


def _judged(
    rule: TimedRule,
    points: Points,
    p_value: float,
    floor: float | None,
    *,
    level: float,
    shown: bool,
) -> Judgement:
    """`level`: what the smallest p of all metrics has to be at most."""
    ratio = launch_ratio(*points)
    several = min(map(len, points)) >= MIN_LAUNCHES
    if several:
        verdict, reason = _by_launches(rule, ratio, shown=shown)
        if verdict is GateVerdict.INCONCLUSIVE and least_p_value(*map(len, points)) > level:
            reason = (
                "too few launches to show a regression in one of so many metrics: measure "
                f"{launches_needed(level)} a side"
            )
    else:
        verdict, reason = _by_floor(rule, ratio.point, floor, launches_needed(level))
    middle = [sorted(side)[(len(side) - 1) // 2] for side in points]
    return Judgement(
        metric=rule.metric,
        check=Check.LAUNCHES if several else Check.ONE_LAUNCH,
        verdict=verdict,
        tolerance=rule.tolerance,
        baseline=middle[0],
        candidate=middle[1],
        ratio=ratio,
        p_value=p_value if several else None,
        minimum_detectable=None if several else floor,
        reason=reason,
    )


def _by_launches(rule: TimedRule, ratio: Estimate, *, shown: bool) -> tuple[GateVerdict, str]:
    limit = log1p(rule.tolerance)
    lower_is_better = rule.metric.better is Better.LOWER
    worse = log(ratio.point) if lower_is_better else -log(ratio.point)
    at_worst = log(ratio.high) if lower_is_better else -log(ratio.low)
    if shown and worse >= limit:
        return GateVerdict.FAIL, "worse in an exact Mann-Whitney test over launches"
    if at_worst < limit:
        return GateVerdict.PASS, "its upper bound over launches is below the tolerance"
    return GateVerdict.INCONCLUSIVE, "neither shown nor excluded by these launches"


def _by_floor(
    rule: TimedRule, ratio: float, floor: float | None, needed_launches: int
) -> tuple[GateVerdict, str]:
    if floor is None:
        return GateVerdict.INCONCLUSIVE, (
            "too few launches, and no noise floor is known: "
            + "run llmprof gate calibrate here, or " * (rule.metric.name in round_metric_names())
            + f"measure {needed_launches} launches a side"
        )
    worse = log(ratio) if rule.metric.better is Better.LOWER else -log(ratio)
    needed = max(log1p(rule.tolerance), FLOORS_APART * log1p(floor))
    told = f"launches of the same code differ by up to {units.percent(floor)} here"
    if worse >= needed:
        return GateVerdict.FAIL, f"worse by more than {units.percent(expm1(needed))}; {told}"
    if worse + log1p(floor) < log1p(rule.tolerance):
        return GateVerdict.PASS, told
    return GateVerdict.INCONCLUSIVE, f"{told}: too much to tell"


def judge_budgets(budgets: Sequence[GateBudget], candidate: Sequence[Report]) -> list[Judgement]:
    """Absolute limits, by the whole interval of the candidate's first run.

    Raises:
        InputError: a budget for a name that is no metric.
    """
    report = candidate[0]
    estimates = report_estimates(report)
    counts = exact_counters(report.run)
    judged = []
    for budget in budgets:
        metric = metric_named(budget.name)
        estimate = estimates.get(budget.name)
        if budget.name in counts:
            value = counts[budget.name]
            estimate = Estimate(point=value, low=value, high=value, confidence=0, num_samples=1)
        verdict, reason = _within(budget, estimate, counted=budget.name in counts)
        judged.append(
            Judgement(
                metric=metric,
                check=Check.BUDGET,
                verdict=verdict,
                tolerance=None,
                at_most=budget.max,
                at_least=budget.min,
                baseline=None,
                candidate=estimate.point if estimate else None,
                reason=reason,
            )
        )
    return judged


def _within(
    budget: GateBudget, estimate: Estimate | None, *, counted: bool
) -> tuple[GateVerdict, str]:
    if estimate is None:
        return GateVerdict.INCONCLUSIVE, "the run has no such figure"
    if not counted and not estimate.confidence:
        return GateVerdict.INCONCLUSIVE, "a single round has no interval: measure more of them"
    above = budget.max is not None and estimate.low > budget.max
    below = budget.min is not None and estimate.high < budget.min
    if above or below:
        return GateVerdict.FAIL, "the whole interval is outside the budget"
    inside_max = budget.max is None or estimate.high <= budget.max
    inside_min = budget.min is None or estimate.low >= budget.min
    if inside_max and inside_min:
        return GateVerdict.PASS, "the whole interval is inside the budget"
    return GateVerdict.INCONCLUSIVE, "the interval lies across the budget's limit"
