"""Predicted beside measured, and where the difference went."""

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from llmprof import units
from llmprof.renderers.text_layout import wrap_all
from llmprof.renderers.wording import group_name, one_line
from llmprof.schema.confirmation import (
    Confirmation,
    GroupResidual,
    OutputComparison,
    PhaseConfirmation,
)

_SHOWN = 5


def render_confirmation(confirmation: Confirmation, console: Console) -> None:
    for line in wrap_all(_lines(confirmation), console.width):
        console.print(line, no_wrap=True, overflow="ignore", crop=False)


def _lines(confirmation: Confirmation) -> Iterator[Text]:
    changes = ", ".join(
        f"{one.key} {one.base} → {one.target}" for one in confirmation.prediction.changes
    )
    yield Text()
    yield Text.assemble(("confirm ", "dim"), (one_line(changes), "bold"))
    yield Text(
        f"predicted at {confirmation.predicted_at:%H:%M:%S} UTC (tier "
        f"{confirmation.prediction.tier.value}), measured after that in {confirmation.pairs} pairs, "
        "A B B A in one process"
    )
    for phase in confirmation.phases:
        yield Text()
        yield from _phase(phase)
    yield Text()
    yield Text(_outputs(confirmation.outputs))
    for caveat in confirmation.caveats:
        yield Text(f"! {one_line(caveat.message)}", "yellow")


def _phase(phase: PhaseConfirmation) -> Iterator[Text]:
    verdict = "inside the interval" if phase.inside else "OUTSIDE the interval"
    yield Text.assemble(
        (one_line(phase.sentence), "bold"), f" · {verdict}, {units.percent(phase.error)} off"
    )
    for part in phase.residuals[:_SHOWN]:
        yield _residual(part)


def _residual(part: GroupResidual) -> Text:
    name = "between the groups" if part.group is None else group_name(part.group)
    return Text(
        f"  {name:<20} predicted {units.seconds(part.predicted_s):>8}  measured "
        f"{units.seconds(part.measured_s):>8}"
    )


def _outputs(outputs: OutputComparison) -> str:
    if outputs.same is None:
        return f"output tokens not compared: {one_line(outputs.reason or 'no reason given')}"
    if outputs.same:
        return f"output tokens: all {outputs.tokens} are the same"
    return (
        f"output tokens: {outputs.equal_tokens} of {outputs.tokens} are the same "
        f"({units.percent(outputs.equal_tokens / outputs.tokens)}); after the first other token a "
        "sequence goes its own way"
    )
