"""Metric by metric over pairs of rounds that took turns: what drifts in both arms cancels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from llmprof.analysis.checks import MIN_ROUNDS
from llmprof.analysis.compare_metrics import SIGNIFICANCE, direction, exact_changes
from llmprof.analysis.metrics import TIMED, report_estimates, round_rates, round_values
from llmprof.analysis.paired import log_ratios, p_value_above_zero, paired_ratio
from llmprof.analysis.phases import steps_of
from llmprof.analysis.roofline import step_roof_fraction
from llmprof.analysis.step_work import median_step_work
from llmprof.analysis.validity import select_rounds
from llmprof.schema.comparison import Arrangement, Basis, Change, MetricChange
from llmprof.schema.metric import Metric
from llmprof.schema.report import Report
from llmprof.schema.run import Round, RunRecord

MIN_PAIRS: Final = 6
"""All of so few must agree before a two-sided signed-rank test at 5 % shows anything: 2 / 2^6."""


@dataclass(frozen=True, slots=True)
class RoundPairs:
    """Rounds of both arms with the same index, in order."""

    baseline: tuple[Round, ...]
    candidate: tuple[Round, ...]
    num_measured: int
    num_disturbed: int


def round_pairs(base: RunRecord, target: RunRecord) -> RoundPairs:
    """Without the pairs of which one round was disturbed, while three others remain."""
    valid = [_by_index(select_rounds(record.rounds).rounds) for record in (base, target)]
    every = [_by_index(record.rounds) for record in (base, target)]
    measured = every[0].keys() & every[1].keys()
    common = valid[0].keys() & valid[1].keys()
    disturbed = len(measured) - len(common)
    if len(common) < MIN_ROUNDS:
        valid, common = every, measured
    indices = sorted(common)
    return RoundPairs(
        baseline=tuple(valid[0][index] for index in indices),
        candidate=tuple(valid[1][index] for index in indices),
        num_measured=len(measured),
        num_disturbed=disturbed,
    )


def _by_index(rounds: Sequence[Round]) -> dict[int, Round]:
    return {one.index: one for one in rounds}


def paired_changes(
    baseline: Report, candidate: Report, pairs: RoundPairs, arrangement: Arrangement
) -> tuple[MetricChange, ...]:
    """Every metric that a side has: timed ones pair by pair, exact ones by their difference.

    Two arms in one process have one peak of memory between them: it is neither's.
    """
    values = (
        _values(baseline.run, pairs.baseline),
        _values(candidate.run, pairs.candidate),
    )
    sides = report_estimates(baseline), report_estimates(candidate)
    changes = []
    for metric in TIMED:
        if not any(metric.name in side for side in sides):
            continue
        change = MetricChange(
            metric=metric,
            baseline=sides[0].get(metric.name),
            candidate=sides[1].get(metric.name),
            ratio=None,
            basis=Basis.PAIRED,
            change=Change.NOT_SHOWN,
        )
        changes.append(change.model_copy(update=_tested(metric, *values)))
    alone = arrangement is Arrangement.OWN_PROCESSES
    return (*changes, *exact_changes(baseline, candidate, peaks=alone))


def _values(record: RunRecord, rounds: Sequence[Round]) -> list[dict[str, float]]:
    """All timed metrics of each round."""
    values = [round_values(one) | round_rates(one) for one in rounds]
    for phase in record.phases:
        if not any(steps_of(one, phase) for one in rounds):
            continue
        work = median_step_work(record, rounds, phase)
        if work is None:
            continue
        for one, found in zip(rounds, values, strict=True):
            fraction = step_roof_fraction(record, (one,), phase, work)
            if fraction is not None:
                found[f"{phase.value}.roof_fraction.p50"] = fraction.point
    return values


def _tested(
    metric: Metric,
    baseline: Sequence[Mapping[str, float]],
    candidate: Sequence[Mapping[str, float]],
) -> dict[str, object]:
    """Over the pairs that have the metric; nothing where none has."""
    both = [
        (one[metric.name], other[metric.name])
        for one, other in zip(baseline, candidate, strict=True)
        if one.get(metric.name, 0.0) > 0 and other.get(metric.name, 0.0) > 0
    ]
    if not both:
        return {}
    base, cand = zip(*both, strict=True)
    ratio = paired_ratio(base, cand)
    differences = log_ratios(base, cand)
    larger, smaller = p_value_above_zero(differences), p_value_above_zero(-differences)
    p_value = min(1.0, 2 * min(larger, smaller))
    change = direction(metric, ratio.point) if p_value <= SIGNIFICANCE else Change.NOT_SHOWN
    return {"ratio": ratio, "p_value": p_value, "change": change}
