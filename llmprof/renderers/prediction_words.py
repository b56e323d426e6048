"""What a prediction says in words: the same on the terminal, the page and in Markdown."""

from collections.abc import Callable

from llmprof import units
from llmprof.renderers.wording import LIMIT_NAMES, one_line
from llmprof.schema.prediction import (
    Capacity,
    GroupPrediction,
    Interval,
    PhasePrediction,
    Prediction,
    Tier,
)

_ASSUMED = "ranges from what is assumed at best to what is at worst"
INTERVALS: dict[Tier, str] = {
    Tier.A: _ASSUMED,
    Tier.B: _ASSUMED,
    Tier.C: "90 % intervals",
}
"""What an interval is: only those of tier C have been counted against measurements."""
TIERS: dict[Tier, str] = {
    Tier.A: "tier A: ceilings and the model alone",
    Tier.B: "tier B: a run, with kernels or a device that it did not measure",
    Tier.C: "tier C: a run, and a measured roof of every kernel that changes",
}


def headline(prediction: Prediction) -> str:
    """Each phase in one sentence, the memory first where it decides."""
    sentences = [] if prediction.capacity.fits else [f"{does_not_fit(prediction.capacity)}."]
    sentences += map(_phase_sentence, prediction.phases)
    return " ".join(sentences)


def _phase_sentence(phase: PhasePrediction) -> str:
    step = with_interval(phase.step_s, units.seconds)
    then = f"{units.percent(phase.limit_share)} of it {LIMIT_NAMES[phase.limit]}"
    if phase.base_step_s is None or phase.speedup is None:
        return f"A {phase.phase.value} step is predicted to take {step}, {then}."
    before = units.seconds(phase.base_step_s.point)
    speedup = with_interval(phase.speedup, units.ratio)
    return f"A {phase.phase.value} step goes from {before} to {step}: {speedup} as fast, {then}."


def changes_line(prediction: Prediction) -> str:
    """`weights.quantization none → int4`; a value that is not set is called so."""
    changes = (f"{one.key} {_value(one.base)} → {_value(one.target)}" for one in prediction.changes)
    return one_line(", ".join(changes))


def _value(value: str) -> str:
    """A change holds its values as text; no value is Python's word there."""
    return "not set" if value == "None" else value


def tier_why(prediction: Prediction) -> str:
    """Whose kernels a tier B lacks; of tier A everything is, and of C nothing."""
    unknown = dict.fromkeys(
        group_label(one)
        for phase in prediction.phases
        for one in phase.groups
        if not one.is_measured
    )
    if prediction.tier is not Tier.B or not unknown:
        return ""
    return f"not tier C, since nobody measured what they take then: {', '.join(unknown)}"


def does_not_fit(capacity: Capacity) -> str:
    """Before any number: those that follow are of another batch than was asked for."""
    asked = f"DOES NOT FIT: a batch of {units.count(capacity.asked_batch)}"
    if not capacity.largest_batch:
        return f"{asked}, nor a single sequence of this length: nothing is predicted"
    return f"{asked}. What follows is the largest that fits: {units.count(capacity.largest_batch)}"


def memory_line(capacity: Capacity) -> str:
    """What is needed of what is there, and how many sequences that allows."""
    return (
        f"memory {units.byte_count(needed_bytes(capacity))} "
        f"({units.byte_count(capacity.weight_bytes)} weights, "
        f"{units.byte_count(capacity.kv_bytes)} KV cache) of "
        f"{units.byte_count(capacity.available_bytes)}: "
        f"{units.count(capacity.largest_batch)} sequences of this length fit"
    )


def needed_bytes(capacity: Capacity) -> float:
    return capacity.weight_bytes + capacity.kv_bytes + capacity.activation_bytes


def naive_line(phase: PhasePrediction) -> str:
    naive = phase.naive
    roofline = f"bare roofline {units.seconds(naive.roofline_step_s)}"
    if naive.byte_ratio_step_s is None:
        return roofline
    return f"naive forecasts: bytes alone {units.seconds(naive.byte_ratio_step_s)}, {roofline}"


def with_interval(interval: Interval, unit: Callable[[float], str]) -> str:
    """`12.3 ms [11.0 ms, 14.1 ms]`."""
    return f"{unit(interval.point)} [{unit(interval.low)}, {unit(interval.high)}]"


def group_label(one: GroupPrediction) -> str:
    return "between the groups" if one.group is None else one.group.label
