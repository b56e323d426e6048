"""What was predicted beside what was measured, as cells: the terminal, the page and Markdown share them."""

from llmprof import units
from llmprof.renderers.metric_format import NOTHING
from llmprof.renderers.tables import Table
from llmprof.renderers.wording import group_name
from llmprof.schema.comparison import Arrangement, LiveComparison
from llmprof.schema.confirmation import OutputComparison, PhaseConfirmation

_ARRANGEMENTS = {
    Arrangement.ONE_PROCESS: "A B B A in one process",
    Arrangement.OWN_PROCESSES: "A B B A, each turn loaded in a process of its own (memory does not "
    "hold both)",
}


def arrangement_text(live: LiveComparison) -> str:
    """How, and over how many pairs, the arms took turns."""
    pairs = f"{live.num_pairs} pairs"
    if live.num_disturbed:
        left_out = live.num_used < live.num_pairs
        fate = "left out" if left_out else "used all the same, since too few others remain"
        pairs += f", {live.num_disturbed} of them disturbed and {fate}"
    return f"measured in turns, {_ARRANGEMENTS[live.arrangement]}: {pairs}"


def written_outputs_text(outputs: OutputComparison) -> str:
    """Whether both arms wrote the same tokens, and where they part."""
    if outputs.same is None:
        return f"tokens not compared: {outputs.reason or 'no reason given'}"
    if outputs.same:
        return f"both gave the same {outputs.tokens} tokens"
    share = units.percent(outputs.equal_tokens / outputs.tokens)
    return (
        f"the tokens differ from output token {outputs.first_difference} on; {outputs.equal_tokens} of "
        f"{outputs.tokens} agree ({share})"
    )


def prediction_text(live: LiveComparison) -> str:
    """What the prediction rests on, or why there is none."""
    if live.confirmation is None:
        return f"not predicted: {live.not_predicted or 'no reason given'}"
    made = live.confirmation
    return (
        f"predicted at {made.predicted_at:%H:%M:%S} UTC from a run of the baseline (tier "
        f"{made.prediction.tier.value}), measured after that"
    )


def forecast_table(live: LiveComparison) -> Table:
    """One row per phase: by how much faster the candidate was to be, and was."""
    phases = live.confirmation.phases if live.confirmation else ()
    return Table(
        caption="Base time over candidate time, as predicted and as measured",
        columns=("phase", "predicted", "measured", "prediction off by", "in its interval"),
        rows=tuple(_forecast_row(one) for one in phases),
        prose=frozenset({4}),
    )


def _forecast_row(one: PhaseConfirmation) -> tuple[str, ...]:
    return (
        one.phase.value,
        f"{units.ratio(one.predicted_speedup)} [{units.significant(one.predicted_low)}, "
        f"{units.significant(one.predicted_high)}]",
        f"{units.ratio(one.speedup.point)} [{units.significant(one.speedup.low)}, "
        f"{units.significant(one.speedup.high)}]",
        units.signed_percent(one.error),
        "inside" if one.inside else "OUTSIDE",
    )


def residual_tables(live: LiveComparison) -> tuple[Table, ...]:
    """Per phase, the groups by how far the prediction missed them."""
    phases = live.confirmation.phases if live.confirmation else ()
    return tuple(_residual_table(one) for one in phases if one.residuals)


def _residual_table(one: PhaseConfirmation) -> Table:
    return Table(
        caption=f"{one.phase.value}: where prediction and measurement part, by op group",
        columns=("op group", "baseline", "predicted", "measured", "measured − predicted"),
        rows=tuple(
            (
                "between the groups" if part.group is None else group_name(part.group),
                NOTHING if part.base_s is None else units.seconds(part.base_s),
                units.seconds(part.predicted_s),
                units.seconds(part.measured_s),
                units.signed_seconds(part.residual_s),
            )
            for part in one.residuals
        ),
    )
