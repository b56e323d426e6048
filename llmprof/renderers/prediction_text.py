"""A prediction on one screen of a terminal."""

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from llmprof import units
from llmprof.renderers.prediction_words import (
    INTERVALS,
    TIERS,
    changes_line,
    does_not_fit,
    group_label,
    memory_line,
    naive_line,
    tier_why,
    with_interval,
)
from llmprof.renderers.text_layout import wrap, wrap_all
from llmprof.renderers.wording import LIMIT_NAMES, TOKEN_NAMES, one_line
from llmprof.schema.prediction import GroupPrediction, PhasePrediction, Prediction

_SHOWN_GROUPS = 6
_SMALL_SHARE = 0.02
"""Of the step: smaller changes of a group are told together."""


def render_prediction(prediction: Prediction, console: Console) -> None:
    for line in _lines(prediction, console.width):
        console.print(line, no_wrap=True, overflow="ignore", crop=False)


def _lines(prediction: Prediction, width: int) -> list[Text]:
    lines = wrap_all(_header(prediction), width)
    for phase in prediction.phases:
        lines += [Text(), *wrap_all(_phase(phase), width)]
    lines += [Text(), *wrap_all([Text(memory_line(prediction.capacity))], width)]
    if why := tier_why(prediction):
        lines += wrap(Text(f"- {why}", "dim"), width)
    for assumption in prediction.assumptions:
        lines += wrap(Text(f"- {assumption}", "dim"), width)
    for caveat in prediction.caveats:
        lines += wrap(Text(f"! {one_line(caveat.message)}", "yellow"), width)
    return lines


def _header(prediction: Prediction) -> Iterator[Text]:
    capacity = prediction.capacity
    if not capacity.fits:
        yield Text(does_not_fit(capacity), "bold yellow")
    yield Text.assemble(("llmprof predict ", "dim"), (one_line(prediction.base), "bold"))
    if prediction.changes:
        yield Text(changes_line(prediction), "bold")
    yield Text(
        f"{one_line(prediction.device)} · {TIERS[prediction.tier]} · {INTERVALS[prediction.tier]}"
    )


def _phase(phase: PhasePrediction) -> Iterator[Text]:
    title = Text.assemble((f"{phase.phase.value.upper()} ", "bold"))
    title.append(f"{with_interval(phase.step_s, units.seconds)} a step", "bold")
    if phase.base_step_s is not None and phase.speedup is not None:
        title.append(f", from {units.seconds(phase.base_step_s.point)}: ")
        title.append(f"{with_interval(phase.speedup, units.ratio)} as fast", "bold")
    rate = units.significant(phase.new_tokens_per_s.point)
    title.append(f" · {rate} {TOKEN_NAMES[phase.phase]} · tier {phase.tier.value}")
    yield title
    share = units.percent(phase.limit_share)
    yield Text(f"then {share} {LIMIT_NAMES[phase.limit]}; {naive_line(phase)}")
    yield from _groups(phase)


def _groups(phase: PhasePrediction) -> Iterator[Text]:
    """Those that change, largest change first; the others in one line."""
    moved = sorted(phase.groups, key=lambda one: -abs(_change_s(one)))
    told = [one for one in moved if abs(_change_s(one)) >= _SMALL_SHARE * phase.step_s.point]
    for one in told[:_SHOWN_GROUPS]:
        before = "" if one.base_s is None else f"{units.seconds(one.base_s):>8} → "
        after = units.seconds(one.predicted_s.point)
        yield Text.assemble(
            f"  {group_label(one):<20}{before}{after:>8}", (f"  {one.basis}", "dim")
        )
    rest = [one for one in phase.groups if one not in told[:_SHOWN_GROUPS]]
    total_s = sum(one.predicted_s.point for one in rest)
    yield Text(f"  {'all others':<20}{units.seconds(total_s):>8}", "dim")


def _change_s(one: GroupPrediction) -> float:
    return one.predicted_s.point - (one.base_s or 0.0)
