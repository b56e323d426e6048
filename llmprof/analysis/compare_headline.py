"""One sentence that a reader may quote: how much, whether it is shown, and where it lies."""

from collections.abc import Sequence

from llmprof import units
from llmprof.analysis.compare_pairs import MIN_PAIRS
from llmprof.analysis.metrics import TPOT, TTFT
from llmprof.schema.comparison import (
    Basis,
    Change,
    MetricChange,
    PartChange,
    num_adjusted,
)
from llmprof.schema.cost import Phase

_NAMES = {
    TPOT: "Time per output token",
    "decode.step_s.p50": "A decode step",
    TTFT: "Time to the first token",
    "prefill.step_s.p50": "A prefill step",
    "mixed.step_s.p50": "A mixed step",
}
_FIRST = tuple(_NAMES)


def headline(metrics: Sequence[MetricChange], parts: Sequence[PartChange]) -> str:
    """About the first metric of decode, else of prefill, that both sides have."""
    by_name = {change.metric.name: change for change in metrics if change.ratio is not None}
    told = next((by_name[name] for name in _FIRST if name in by_name), None)
    if told is None:
        return "The two runs have no metric in common."
    if told.basis is Basis.ONE_LAUNCH or told.change is Change.NOT_SHOWN:
        return f"{_shown(told, metrics)}: {_amount(told)}."
    return f"{_amount(told)}{_where(told, parts)}. {_shown(told, metrics)}."


def _amount(change: MetricChange) -> str:
    assert change.baseline is not None
    assert change.candidate is not None
    assert change.ratio is not None
    # The ratio of two medians need not be the median of the pairs' ratios: say which one it is.
    pairwise = " pair by pair" if change.basis is Basis.PAIRED else ""
    return (
        f"{_NAMES.get(change.metric.name, change.metric.name)} goes from {units.seconds(change.baseline.point)} to "
        f"{units.seconds(change.candidate.point)} ({units.signed_percent(change.ratio.point - 1)}{pairwise})"
    )


def _where(change: MetricChange, parts: Sequence[PartChange]) -> str:
    """The part that moved most in the direction of the whole, and whether it is most of that."""
    assert change.ratio is not None
    phase = Phase(change.metric.name.partition(".")[0])
    sign = 1 if change.ratio.point > 1 else -1
    own = [part for part in parts if part.phase is phase]
    largest = max(own, key=lambda part: sign * part.difference_s.point, default=None)
    if largest is None or sign * largest.difference_s.point <= 0:
        return ""
    name, moved_s = largest.part.label, largest.difference_s.point
    step_s = sum(part.difference_s.point for part in own)
    share = "most of it" if 2 * abs(moved_s) > abs(step_s) else "its largest part"
    return f", {share} {name}: {units.signed_seconds(moved_s)}"


def _shown(change: MetricChange, metrics: Sequence[MetricChange]) -> str:
    if change.basis is Basis.ONE_LAUNCH:
        floor = change.noise_floor
        known = f"; launches differ by {units.percent(floor)} here" if floor else ""
        return f"Too few launches: no significance is claimed{known}"
    pairs = change.ratio.num_samples if change.ratio is not None else 0
    if change.change is Change.NOT_SHOWN:
        if change.basis is Basis.PAIRED and pairs < MIN_PAIRS:
            return f"Too few pairs ({pairs} of at least {MIN_PAIRS}): no significance is claimed"
        return "No difference is shown"
    if change.basis is Basis.PAIRED:
        p_value = units.significant(change.p_value or 0.0, 2)
        return f"The difference is shown in {pairs} pairs (p = {p_value})"
    p_value = units.significant(change.p_adjusted or 0.0, 2)
    among = units.number_of(num_adjusted(metrics), "metric")
    return f"The difference is shown (p = {p_value}, adjusted for {among})"
