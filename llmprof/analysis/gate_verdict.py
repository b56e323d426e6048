"""From measured pairs and counts to judgements, and from them to the gate's verdict and exit code."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, Literal

from llmprof import units
from llmprof.analysis.effect_size import minimum_detectable, pair_spread, pairs_needed
from llmprof.analysis.gate_looks import TimedRule, TimedVerdict, oriented_differences
from llmprof.analysis.gate_metrics import CountRule
from llmprof.analysis.paired import p_value_above_zero, paired_ratio
from llmprof.schema.gate_result import Check, GateVerdict, Judgement, Pair
from llmprof.schema.metric import Metric, MetricKind
from llmprof.schema.settings import GateSettings

_WORST_FIRST: Final = (GateVerdict.FAIL, GateVerdict.UNSTABLE, GateVerdict.INCONCLUSIVE)


def gate_verdict(judgements: Sequence[Judgement]) -> GateVerdict:
    """The worst of the metrics': a FAIL that is shown stands, whatever the machine did elsewhere."""
    found = {judgement.verdict for judgement in judgements}
    return next((verdict for verdict in _WORST_FIRST if verdict in found), GateVerdict.PASS)


def exit_code(verdict: GateVerdict, settings: GateSettings) -> Literal[0, 1, 3, 5]:
    if verdict is GateVerdict.FAIL:
        return 1
    if verdict is GateVerdict.UNSTABLE:
        return 5
    if verdict is GateVerdict.INCONCLUSIVE and settings.on_inconclusive == "fail":
        return 3
    return 0


def judge_timed(rule: TimedRule, found: TimedVerdict, pairs: Sequence[Pair]) -> Judgement:
    """A metric of paired rounds, its figures over all valid pairs of every look."""
    name = rule.metric.name
    valid = [pair for pair in pairs if pair.rejected is None]
    if not valid:
        return Judgement(
            metric=rule.metric,
            check=Check.PAIRED,
            verdict=found.verdict,
            tolerance=rule.tolerance,
            baseline=None,
            candidate=None,
            reason=found.reason,
        )
    base, cand = ([side[name] for side in arm] for arm in _arms(valid))
    differences = oriented_differences(rule.metric, valid)
    spread = pair_spread(differences)
    needed = None
    if found.verdict is GateVerdict.INCONCLUSIVE and spread is not None:
        wanted = pairs_needed(spread, rule.tolerance)
        needed = wanted if wanted > len(valid) else None
    return Judgement(
        metric=rule.metric,
        check=Check.PAIRED,
        verdict=found.verdict,
        improved=found.improved,
        tolerance=rule.tolerance,
        baseline=median(base),
        candidate=median(cand),
        ratio=paired_ratio(base, cand),
        p_value=p_value_above_zero(differences),
        minimum_detectable=None if spread is None else minimum_detectable(spread, len(valid)),
        pairs_needed=needed,
        reason=found.reason,
    )


def _arms(pairs: Sequence[Pair]) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    return [pair.baseline for pair in pairs], [pair.candidate for pair in pairs]


def judge_count(
    rule: CountRule, baseline: Sequence[float], candidate: Sequence[float]
) -> Judgement | None:
    """An exact count or a peak of each launch; None where a side has none.

    A peak is worse only where the least of the candidate is above the most of the baseline.
    """
    if not baseline or not candidate:
        return None
    limit = max(baseline) * (1 + rule.tolerance)
    worse = min(candidate) > limit
    base, cand = median(baseline), median(candidate)
    change = units.signed_percent(cand / base - 1) if base else "from nothing"
    words = "the same" if cand == base else change
    return Judgement(
        metric=rule.metric,
        check=Check.PEAK if rule.metric.kind is MetricKind.PEAK else Check.EXACT,
        verdict=GateVerdict.FAIL if worse else GateVerdict.PASS,
        improved=max(candidate) < min(baseline) * (1 - rule.tolerance),
        tolerance=rule.tolerance,
        baseline=base,
        candidate=cand,
        reason=f"{words}, counted" if rule.metric.kind is MetricKind.EXACT else f"{words}, peaks",
    )


def judge_counts(
    rules: Sequence[CountRule],
    baseline: Sequence[Mapping[str, float]],
    candidate: Sequence[Mapping[str, float]],
    *,
    asked_for: bool,
) -> list[Judgement]:
    """Every count that both sides have, over their launches; others where they were asked for."""
    judged = [
        judge_count(
            rule,
            *(
                [launch[rule.metric.name] for launch in side if rule.metric.name in launch]
                for side in (baseline, candidate)
            ),
        )
        for rule in rules
    ]
    if asked_for:
        return [
            one or without_figure(rule.metric, rule.tolerance)
            for rule, one in zip(rules, judged, strict=True)
        ]
    return [one for one in judged if one is not None]


def without_figure(metric: Metric, tolerance: float) -> Judgement:
    """A metric that the settings name and a side does not have: no gate passes on it."""
    checks = {MetricKind.EXACT: Check.EXACT, MetricKind.PEAK: Check.PEAK}
    return Judgement(
        metric=metric,
        check=checks.get(metric.kind, Check.ONE_LAUNCH),
        verdict=GateVerdict.INCONCLUSIVE,
        tolerance=tolerance,
        baseline=None,
        candidate=None,
        reason="baseline or candidate has no such figure",
    )
