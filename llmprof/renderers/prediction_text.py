"""A prediction on one screen of a terminal."""

from collections.abc import Callable, Iterator

from rich.console import Console
from rich.text import Text

from llmprof import units
from llmprof.renderers.text_layout import wrap, wrap_all
from llmprof.renderers.wording import LIMIT_NAMES, TOKEN_NAMES, group_name, one_line
from llmprof.schema.prediction import (
    Capacity,
    GroupPrediction,
    Interval,
    PhasePrediction,
    Prediction,
    Tier,
)

TIERS: dict[Tier, str] = {
    Tier.A: "tier A: ceilings and the model alone",
    Tier.B: "tier B: a run, with kernels or a device that it did not measure",
    Tier.C: "tier C: a run, and a measured roof of every kernel that changes",
}
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
    lines += [Text(), *wrap_all([Text(_memory(prediction.capacity))], width)]
    for assumption in prediction.assumptions:
        lines += wrap(Text(f"- {assumption}", "dim"), width)
    for caveat in prediction.caveats:
        lines += wrap(Text(f"! {one_line(caveat.message)}", "yellow"), width)
    return lines


def _header(prediction: Prediction) -> Iterator[Text]:
    capacity = prediction.capacity
    if not capacity.fits:
        yield Text(_does_not_fit(capacity), "bold yellow")
    yield Text.assemble(("llmprof predict ", "dim"), (one_line(prediction.base), "bold"))
    if prediction.changes:
        changes = ", ".join(f"{one.key} {one.base} → {one.target}" for one in prediction.changes)
        yield Text(one_line(changes), "bold")
    yield Text(f"{one_line(prediction.device)} · {TIERS[prediction.tier]} · 90 % intervals")


def _does_not_fit(capacity: Capacity) -> str:
    """Before any number: those that follow are of another batch than was asked for."""
    asked = f"DOES NOT FIT: a batch of {units.count(capacity.asked_batch)}"
    if not capacity.largest_batch:
        return f"{asked}, nor a single sequence of this length: nothing is predicted"
    return f"{asked}. What follows is the largest that fits: {units.count(capacity.largest_batch)}"


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
    yield Text(f"then {share} {LIMIT_NAMES[phase.limit]}; {_naive(phase)}")
    yield from _groups(phase)


def with_interval(interval: Interval, unit: Callable[[float], str]) -> str:
    """`12.3 ms [11.0 ms, 14.1 ms]`."""
    return f"{unit(interval.point)} [{unit(interval.low)}, {unit(interval.high)}]"


def _naive(phase: PhasePrediction) -> str:
    naive = phase.naive
    roofline = f"bare roofline {units.seconds(naive.roofline_step_s)}"
    if naive.byte_ratio_step_s is None:
        return roofline
    return f"naive forecasts: bytes alone {units.seconds(naive.byte_ratio_step_s)}, {roofline}"


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


def group_label(one: GroupPrediction) -> str:
    return "between the groups" if one.group is None else group_name(one.group)


def _change_s(one: GroupPrediction) -> float:
    return one.predicted_s.point - (one.base_s or 0.0)


def _memory(capacity: Capacity) -> str:
    need = capacity.weight_bytes + capacity.kv_bytes + capacity.activation_bytes
    return (
        f"memory {units.byte_count(need)} ({units.byte_count(capacity.weight_bytes)} weights, "
        f"{units.byte_count(capacity.kv_bytes)} KV cache) of "
        f"{units.byte_count(capacity.available_bytes)}: "
        f"{units.count(capacity.largest_batch)} sequences of this length fit"
    )
