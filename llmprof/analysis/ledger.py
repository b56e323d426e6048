"""The ledger of a phase: parts that sum to the step, group by group, and what is hidden."""

from collections.abc import Callable

from llmprof.analysis.splits import PhaseSplits
from llmprof.analysis.step_split import GroupSplit, StepSplit
from llmprof.schema.cost import ByteTraffic, OpGroup, Phase
from llmprof.schema.ledger import (
    GroupEntry,
    HiddenTerm,
    Ledger,
    Part,
    PartTime,
    Sensitivity,
    Side,
)
from llmprof.schema.measurement import Estimate

PER_CENT = 0.01


def build_ledger(phase: Phase, splits: PhaseSplits, step_s: Estimate) -> Ledger:
    """Where one step spends its time; `step_s` is its estimate from the clean pass alone."""
    return Ledger(
        phase=phase,
        step_s=step_s,
        grouped_scale=splits.grouped_scale,
        parts=_parts(splits),
        groups=tuple(_entry(group, splits) for group in _slowest_first(splits.center)),
        hidden=_hidden(splits),
        sensitivities=_sensitivities(splits.center),
    )


def _parts(splits: PhaseSplits) -> tuple[PartTime, ...]:
    center = splits.center
    return tuple(
        PartTime(
            part=part,
            time_s=splits.estimate(_time_of(part)),
            share=time_s / center.step_s,
        )
        for part, time_s in center.parts_s().items()
    )


def _time_of(part: Part) -> Callable[[StepSplit], float]:
    return lambda split: split.parts_s()[part]


def _slowest_first(split: StepSplit) -> list[OpGroup]:
    return sorted(split.groups, key=lambda group: -split.groups[group].time_s)


def _entry(group: OpGroup, splits: PhaseSplits) -> GroupEntry:
    center = splits.center.groups[group]
    ops = splits.work.fixed_cost.ops
    costs = splits.work.of(group)
    return GroupEntry(
        group=group,
        ops=None if ops is None else ops.get(group, 0),
        time_s=_group_estimate(splits, group, lambda split: split.time_s),
        memory_s=center.memory_s,
        compute_s=center.compute_s,
        fixed_cost_s=center.fixed_cost_s,
        roof_s=center.roof_s,
        loss_s=_group_estimate(splits, group, lambda split: split.loss_s),
        side=center.side,
        flops=sum(cost.flops for cost in costs),
        traffic=sum((cost.traffic for cost in costs), start=ByteTraffic()),
        roof_bytes=sum(roof.roof_bytes for roof in center.roofs),
        exchange_s=sum(roof.exchange_s or 0.0 for roof in center.roofs),
        exchanged_bytes=sum(cost.exchanged_bytes for cost in costs),
    )


def _group_estimate(
    splits: PhaseSplits, group: OpGroup, quantity: Callable[[GroupSplit], float]
) -> Estimate:
    """A group that a grouped round did not enter took no time in it."""

    def value(split: StepSplit) -> float:
        return quantity(split.groups[group]) if group in split.groups else 0.0

    return splits.estimate(value)


def _hidden(splits: PhaseSplits) -> tuple[HiddenTerm, ...]:
    """The shorter link of every op, and the host where the device is the longer one."""
    roofs = [roof for group in splits.center.groups.values() for roof in group.roofs]
    terms = [
        HiddenTerm(
            name="arithmetic",
            time_s=sum(roof.compute_s for roof in roofs if roof.side == Side.MEMORY),
            under="memory traffic",
        ),
        HiddenTerm(
            name="memory traffic",
            time_s=sum(roof.memory_s for roof in roofs if roof.side == Side.COMPUTE),
            under="arithmetic",
        ),
    ]
    if splits.enqueue_s is not None and splits.center.host_s <= 0:
        terms.append(HiddenTerm(name="host", time_s=splits.enqueue_s, under="the device"))
    return tuple(term for term in terms if term.time_s > 0)


def _sensitivities(split: StepSplit) -> tuple[Sensitivity, ...]:
    """Gain of one per cent less, where every op keeps its ratio of time to roof."""
    groups = split.groups.values()
    gain_s = {
        "weight bytes": sum(_link_time_s(group, Part.MEMORY_WEIGHTS) for group in groups),
        "KV bytes": sum(_link_time_s(group, Part.MEMORY_KV) for group in groups),
        "FLOPs": sum(_link_time_s(group, Part.COMPUTE) for group in groups),
        "number of ops": sum(_fixed_time_s(group) for group in groups),
        "host time": split.host_s,
    }
    if any(group.is_exchange for group in groups):
        gain_s["communication"] = sum(_link_time_s(group, Part.COMMUNICATION) for group in groups)
    return tuple(
        Sensitivity(of=name, seconds_per_percent=PER_CENT * time_s)
        for name, time_s in gain_s.items()
    )


def _link_time_s(group: GroupSplit, part: Part) -> float:
    """Measured time that goes with `part` of the group's links: its roof share, loss included."""
    if group.is_small or not group.has_link or not group.link_s:
        return 0.0
    share = sum(roof.link_by_part().get(part, 0.0) for roof in group.roofs) / group.link_s
    return (group.time_s - group.fixed_cost_s) * share


def _fixed_time_s(group: GroupSplit) -> float:
    """A group of small ops is as long as it has ops; in others each op costs alpha."""
    return group.time_s if group.is_small else group.fixed_cost_s
