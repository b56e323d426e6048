"""What a gate judges, by its settings: metrics with their tolerances, and budgets."""

from dataclasses import dataclass
from typing import Final

from llmprof.analysis.gate_looks import TimedRule
from llmprof.analysis.metrics import EXACT, PEAK_MEMORY, TPOT, TTFT, metric_named
from llmprof.errors import InputError
from llmprof.schema.metric import Metric, MetricKind
from llmprof.schema.settings import GateSettings

DEFAULT_TIMED: Final = (TTFT, TPOT)
PEAK_TOLERANCE: Final = 0.05
"""Of the resident set, which allocators and caches of compiled code move."""


@dataclass(frozen=True, slots=True)
class CountRule:
    """An exact count or a peak, and how much more of it is allowed."""

    metric: Metric
    tolerance: float


@dataclass(frozen=True, slots=True)
class GateRules:
    timed: tuple[TimedRule, ...]
    counts: tuple[CountRule, ...]


def gate_rules(settings: GateSettings) -> GateRules:
    """The metrics that the settings name; without any, TTFT, TPOT, every exact count and the peak.

    Raises:
        InputError: a name that is no metric, one that is named twice, or a time without a tolerance.
    """
    if not settings.metrics:
        return GateRules(
            timed=tuple(TimedRule(metric_named(one), settings.tolerance) for one in DEFAULT_TIMED),
            counts=(
                *(CountRule(metric, 0.0) for metric in EXACT),
                CountRule(metric_named(PEAK_MEMORY), PEAK_TOLERANCE),
            ),
        )
    named = [(metric_named(one.name), one.tolerance) for one in settings.metrics]
    names = [metric.name for metric, _ in named]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"gate.metrics names {twice} twice")
    timed = [one for one in named if one[0].kind is MetricKind.TIMED]
    exact = next((metric.name for metric, tolerance in timed if not tolerance), None)
    if exact is not None:
        raise InputError(
            f"gate.metrics: {exact} has a tolerance of 0, and no two times are the same",
            remedy="Allow some of it: 0.05 is 5 %; 0 is for what is counted",
        )
    return GateRules(
        timed=tuple(TimedRule(*one) for one in timed),
        counts=tuple(CountRule(*one) for one in named if one not in timed),
    )
