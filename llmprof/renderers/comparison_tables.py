"""The tables of a comparison: the terminal, the page and the Markdown show the same cells."""

from llmprof import units
from llmprof.renderers.estimates import confidence, interval, point_and_interval
from llmprof.renderers.live_tables import written_outputs_text
from llmprof.renderers.metric_format import NOTHING, change_text, formatter, value_text
from llmprof.renderers.tables import Table
from llmprof.renderers.wording import one_line
from llmprof.schema.comparison import (
    Basis,
    Change,
    Comparison,
    MetricChange,
    PartChange,
    num_adjusted,
)
from llmprof.schema.cost import Phase
from llmprof.schema.measurement import Estimate

MARKS = {
    Change.BETTER: "better",
    Change.WORSE: "worse",
    Change.EQUAL: "=",
    Change.NOT_SHOWN: "~",
}


def metrics_table(comparison: Comparison) -> Table:
    """One row per metric; `~` where no difference is shown."""
    together = f"; p {adjusted_text(comparison)}" if num_adjusted(comparison.metrics) else ""
    return Table(
        caption=f"Metrics: median with its interval; ~ where no difference is shown{together}",
        columns=("metric", "baseline", "candidate", "change", "shown", "basis"),
        rows=tuple(_metric_row(change) for change in comparison.metrics),
        prose=frozenset({4, 5}),
    )


def short_metrics_table(comparison: Comparison) -> Table:
    """As narrow as a terminal: points alone, the interval where it counts."""
    return Table(
        caption="",
        columns=("metric", "baseline", "candidate", "change", ""),
        rows=tuple(
            (
                change.metric.name,
                _point(change, change.baseline),
                _point(change, change.candidate),
                change_text(change.ratio),
                MARKS[change.change],
            )
            for change in comparison.metrics
        ),
        prose=frozenset({4}),
    )


def _point(change: MetricChange, estimate: Estimate | None) -> str:
    return value_text(change.metric, None if estimate is None else estimate.point)


def _metric_row(change: MetricChange) -> tuple[str, ...]:
    return (
        change.metric.name,
        _side(change, change.baseline),
        _side(change, change.candidate),
        change_text(change.ratio),
        MARKS[change.change],
        basis_text(change),
    )


def _side(change: MetricChange, estimate: Estimate | None) -> str:
    if estimate is None:
        return NOTHING
    text = formatter(change.metric)
    if change.basis is Basis.EXACT or estimate.num_samples == 1:
        return text(estimate.point)
    return point_and_interval(estimate, text)


def basis_text(change: MetricChange) -> str:
    """What the statement rests on, and how far launches differ here where that is known."""
    ratio = change.ratio
    if change.basis is Basis.EXACT:
        return "exact"
    if ratio is None:
        return "one side only"
    if change.basis is Basis.ONE_LAUNCH:
        floor = change.noise_floor
        known = "" if floor is None else f", launches differ by {units.percent(floor)}"
        return f"too few launches{known}"
    over = "rounds" if change.basis is Basis.PAIRED else "launches"
    return f"{confidence(ratio)} {over}{_p_text(change)}"


def _p_text(change: MetricChange) -> str:
    """The value that the mark rests on."""
    if change.p_adjusted is not None:
        return f", p {units.significant(change.p_adjusted, 2)} adjusted"
    return "" if change.p_value is None else f", p {units.significant(change.p_value, 2)}"


def adjusted_text(comparison: Comparison) -> str:
    """How many metrics were looked at together: adjusted for 8 metrics."""
    among = units.number_of(num_adjusted(comparison.metrics), "metric")
    return f"adjusted for {among} after Holm"


def parts_tables(comparison: Comparison) -> tuple[Table, ...]:
    """One per phase that both sides have split."""
    phases = dict.fromkeys(change.phase for change in comparison.parts)
    return tuple(_parts_table(comparison, phase) for phase in phases)


def _parts_table(comparison: Comparison, phase: Phase) -> Table:
    changes = [change for change in comparison.parts if change.phase is phase]
    return Table(
        caption=f"{phase.value}: where the difference of a step lies (the parts sum to it)",
        columns=("part", "baseline", "candidate", "difference", "interval"),
        rows=tuple(
            (
                change.part.label,
                _seconds(change.baseline_s),
                _seconds(change.candidate_s),
                _difference(change.difference_s.point),
                interval(change.difference_s, _difference),
            )
            for change in changes
            if _is_there(change)
        ),
    )


def _difference(value_s: float) -> str:
    """Less than a picosecond is what subtracting equal numbers leaves."""
    return units.signed_seconds(value_s if abs(value_s) >= 1e-12 else 0.0)


def _is_there(change: PartChange) -> bool:
    """Whether a side has any of it."""
    sides = (change.baseline_s, change.candidate_s)
    return any(one is not None and one.point != 0 for one in sides)


def _seconds(estimate: Estimate | None) -> str:
    return NOTHING if estimate is None else units.seconds(estimate.point)


def settings_table(comparison: Comparison) -> Table:
    return Table(
        caption="What was set differently",
        columns=("setting", "baseline", "candidate"),
        rows=tuple(
            (one.key, one_line(one.baseline), one_line(one.candidate))
            for one in comparison.settings
        ),
        prose=frozenset({1, 2}),
    )


def stamps(comparison: Comparison) -> tuple[str, ...]:
    """What must be seen before any number."""
    if not comparison.not_comparable:
        return ()
    kind = "FORCED, NOT COMPARABLE" if comparison.live is None else "NOT LIKE FOR LIKE"
    return (f"{kind}: {one_line('; '.join(comparison.not_comparable))}",)


def outputs_text(comparison: Comparison) -> str:
    if comparison.live is not None:
        return one_line(written_outputs_text(comparison.live.outputs))
    return {
        True: "both gave the same tokens",
        False: "the tokens differ",
        None: "not known whether the tokens agree",
    }[comparison.same_outputs]
