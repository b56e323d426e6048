"""What was predicted before a switch was flipped, beside what was measured after: sentences and tables."""

from typing import Final

from llmprof import units
from llmprof.renderers.estimates import point_and_interval
from llmprof.renderers.tables import Table
from llmprof.renderers.wording import one_line
from llmprof.schema.confirmation import (
    Confirmation,
    GroupResidual,
    OutputComparison,
    PhaseConfirmation,
)

_TICK_S: Final = 1e-9
"""No clock that times a step tells less."""


def changes_words(confirmation: Confirmation) -> str:
    """What was flipped: weights.quantization none → int4."""
    changes = (
        f"{one.key} {_value(one.base)} → {_value(one.target)}"
        for one in confirmation.prediction.changes
    )
    return one_line(", ".join(changes))


def _value(value: str) -> str:
    """A change holds its values as text; no value is Python's word there."""
    return "not set" if value == "None" else value


def when_words(confirmation: Confirmation) -> str:
    """In which order things happened: a prediction that comes after is none."""
    return (
        f"predicted at {confirmation.predicted_at:%H:%M:%S} UTC (tier "
        f"{confirmation.prediction.tier.value}), measured after that in "
        f"{units.number_of(confirmation.pairs, 'pair')}, A B B A in one process"
    )


def cover_words(phase: PhaseConfirmation) -> str:
    verdict = "inside the interval" if phase.inside else "OUTSIDE the interval"
    return f"{verdict}, {units.percent(phase.error)} off"


def outcome_words(confirmation: Confirmation) -> tuple[tuple[str, str], ...]:
    """For the first screen: the switch, and per phase what was predicted and what came."""
    return tuple(
        (
            changes_words(confirmation),
            f"{phase.phase.value}: predicted {units.ratio(phase.predicted_speedup)}, measured "
            f"{point_and_interval(phase.speedup, units.ratio)}: {cover_words(phase)}",
        )
        for phase in confirmation.phases
    )


def outputs_words(outputs: OutputComparison) -> str:
    if outputs.same is None:
        return f"output tokens not compared: {one_line(outputs.reason or 'no reason given')}"
    if outputs.same:
        return f"output tokens: all {outputs.tokens} are the same"
    return (
        f"output tokens: {outputs.equal_tokens} of {outputs.tokens} are the same "
        f"({units.percent(outputs.equal_tokens / outputs.tokens)}); after the first other token a "
        "sequence goes its own way"
    )


def confirmation_tables(confirmation: Confirmation) -> tuple[Table, ...]:
    """Speedups per phase, then per phase where the step differs from its prediction."""
    residuals = (
        _residuals_table(phase, changes_words(confirmation)) for phase in confirmation.phases
    )
    return (_phases_table(confirmation), *residuals)


def _phases_table(confirmation: Confirmation) -> Table:
    return Table(
        caption=f"{changes_words(confirmation)}: base step over target step, pair by pair",
        columns=(
            "phase",
            "bytes before / after",
            "predicted",
            "90 % interval",
            "measured",
            "interval",
            "outcome",
        ),
        rows=tuple(
            (
                phase.phase.value,
                units.ratio(phase.byte_ratio),
                units.ratio(phase.predicted_speedup),
                f"[{units.significant(phase.predicted_low)}, "
                f"{units.significant(phase.predicted_high)}]",
                units.ratio(phase.speedup.point),
                f"[{units.significant(phase.speedup.low)}, {units.significant(phase.speedup.high)}]",
                cover_words(phase),
            )
            for phase in confirmation.phases
        ),
        prose=frozenset({6}),
    )


def _residuals_table(phase: PhaseConfirmation, changes: str) -> Table:
    return Table(
        caption=(
            f"{phase.phase.value} step after {changes}: where it differs from its prediction, the "
            "prediction scaled to the speed that the machine had during the pairs"
        ),
        columns=("op group", "before", "predicted", "measured", "measured - predicted"),
        rows=tuple(map(_residual_row, phase.residuals)),
    )


def _residual_row(part: GroupResidual) -> tuple[str, ...]:
    return (
        residual_name(part),
        "-" if part.base_s is None else units.seconds(part.base_s),
        units.seconds(part.predicted_s),
        units.seconds(part.measured_s),
        units.signed_seconds(part.residual_s if abs(part.residual_s) >= _TICK_S else 0.0),
    )


def residual_name(part: GroupResidual) -> str:
    return "between the groups" if part.group is None else part.group.label
