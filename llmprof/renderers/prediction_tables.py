"""The tables of a prediction: what page and Markdown show."""

from llmprof import units
from llmprof.renderers.marks import slug
from llmprof.renderers.prediction_words import INTERVALS, group_label, needed_bytes
from llmprof.renderers.tables import Table
from llmprof.renderers.wording import LIMIT_NAMES, TOKEN_NAMES
from llmprof.schema.prediction import (
    Interval,
    PartPrediction,
    PhasePrediction,
    Prediction,
)

_NONE = "-"


def steps_table(prediction: Prediction) -> Table:
    """One row per phase: before, predicted, how much faster, and what limits it then."""
    return Table(
        caption=f"The median step of each phase, with {INTERVALS[prediction.tier]}",
        columns=(
            "phase",
            "before",
            "predicted",
            "interval",
            "as fast",
            "interval of it",
            "then",
            "tokens",
            "tier",
        ),
        rows=tuple(map(_step_row, prediction.phases)),
        prose=frozenset({6}),
    )


def _step_row(phase: PhasePrediction) -> tuple[str, ...]:
    base, speedup = phase.base_step_s, phase.speedup
    rate = units.significant(phase.new_tokens_per_s.point)
    return (
        phase.phase.value,
        _NONE if base is None else units.seconds(base.point),
        units.seconds(phase.step_s.point),
        _bounds(phase.step_s),
        _NONE if speedup is None else units.ratio(speedup.point),
        _NONE if speedup is None else f"{units.ratio(speedup.low)} to {units.ratio(speedup.high)}",
        f"{units.percent(phase.limit_share)} {LIMIT_NAMES[phase.limit]}",
        f"{rate} {TOKEN_NAMES[phase.phase]}",
        phase.tier.value,
    )


def forecasts_table(prediction: Prediction) -> Table:
    """The ledger beside the two rules that most people use."""
    return Table(
        caption="The same step by simpler rules",
        columns=("phase", "the ledger", "bytes alone", "bare roofline"),
        rows=tuple(
            (
                phase.phase.value,
                units.seconds(phase.step_s.point),
                _NONE
                if phase.naive.byte_ratio_step_s is None
                else units.seconds(phase.naive.byte_ratio_step_s),
                units.seconds(phase.naive.roofline_step_s),
            )
            for phase in prediction.phases
        ),
    )


def parts_table(phase: PhasePrediction) -> Table:
    """The ledger before and after; a row lights its part of the predicted bar."""
    return Table(
        caption=f"{phase.phase.value}: the parts of a step, before and as predicted",
        columns=("part", "before", "predicted", "change"),
        rows=tuple(map(_part_row, phase.parts)),
        keys=tuple(predicted_part_key(phase, one) for one in phase.parts),
    )


def predicted_part_key(phase: PhasePrediction, part: PartPrediction) -> str:
    """Ties the row of a part to its mark in the figure."""
    return f"predicted-{phase.phase.value}-{slug(part.part.label)}"


def _part_row(one: PartPrediction) -> tuple[str, ...]:
    known = one.base_s is not None
    return (
        one.part.label,
        _NONE if one.base_s is None else units.seconds(one.base_s),
        units.seconds(one.predicted_s),
        units.signed_seconds(one.predicted_s - (one.base_s or 0.0)) if known else _NONE,
    )


def groups_table(phase: PhasePrediction) -> Table:
    """Every op group, and how its time was worked out."""
    return Table(
        caption=f"{phase.phase.value}: every op group, and how its time was worked out",
        columns=("op group", "before", "predicted", "bounds", "how", "its kernels"),
        rows=tuple(
            (
                group_label(one),
                _NONE if one.base_s is None else units.seconds(one.base_s),
                units.seconds(one.predicted_s.point),
                _bounds(one.predicted_s),
                one.basis,
                "measured" if one.is_measured else "not measured",
            )
            for one in phase.groups
        ),
        prose=frozenset({4, 5}),
    )


def memory_table(prediction: Prediction) -> Table:
    """What the asked batch needs; the first batch that does not fit is the next after the largest."""
    capacity = prediction.capacity
    rows = (
        ("weights", units.byte_count(capacity.weight_bytes)),
        ("KV cache", units.byte_count(capacity.kv_bytes)),
        ("activations", units.byte_count(capacity.activation_bytes)),
        ("needed", units.byte_count(needed_bytes(capacity))),
        ("available", units.byte_count(capacity.available_bytes)),
        ("largest batch that fits", units.exact(capacity.largest_batch)),
    )
    asked = units.exact(capacity.asked_batch)
    return Table(caption=f"Memory of a batch of {asked}", columns=("what", "size"), rows=rows)


def assumptions_table(prediction: Prediction) -> Table:
    return Table(
        caption="What the figures take for granted",
        columns=("number", "assumption"),
        rows=tuple((str(at), text) for at, text in enumerate(prediction.assumptions, 1)),
        prose=frozenset({1}),
    )


def _bounds(interval: Interval) -> str:
    return f"{units.seconds(interval.low)} to {units.seconds(interval.high)}"
