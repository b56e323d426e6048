"""Predicted beside measured, and where the difference went."""

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from llmprof import units
from llmprof.renderers.confirmation_tables import (
    changes_words,
    cover_words,
    outputs_words,
    residual_name,
    when_words,
)
from llmprof.renderers.text_layout import wrap_all
from llmprof.renderers.wording import one_line
from llmprof.schema.confirmation import Confirmation, GroupResidual, PhaseConfirmation

_SHOWN = 5


def render_confirmation(
    confirmation: Confirmation, console: Console, *, footer: str | None = None
) -> None:
    """Print it in the console's width; `footer` says where it can be read again."""
    for line in wrap_all(_lines(confirmation), console.width):
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    for kept in (footer or "").splitlines():  # a path must stay whole to be copied
        console.print(Text(kept, "dim"), no_wrap=True, overflow="ignore", crop=False)


def _lines(confirmation: Confirmation) -> Iterator[Text]:
    yield Text()
    yield Text.assemble(("confirm ", "dim"), (changes_words(confirmation), "bold"))
    yield Text(when_words(confirmation))
    for phase in confirmation.phases:
        yield Text()
        yield from _phase(phase)
    yield Text()
    yield Text(outputs_words(confirmation.outputs))
    for caveat in confirmation.caveats:
        yield Text(f"! {one_line(caveat.message)}", "yellow")


def _phase(phase: PhaseConfirmation) -> Iterator[Text]:
    yield Text.assemble((one_line(phase.sentence), "bold"), f" · {cover_words(phase)}")
    for part in phase.residuals[:_SHOWN]:
        yield _residual(part)


def _residual(part: GroupResidual) -> Text:
    return Text(
        f"  {residual_name(part):<20} predicted {units.seconds(part.predicted_s):>8}  measured "
        f"{units.seconds(part.measured_s):>8}"
    )
