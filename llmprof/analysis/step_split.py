"""One step split into its parts, for one step time and one set of rates. Plain arithmetic.

    time of a group  t = grouped time x scale          scale closes the step: sum(t) + outside = T
    roof             alpha x ops + sum over its ops of max(memory, compute)
    loss             t - roof                          negative where it is: nothing is clipped

What lies outside every group is not scaled: a sleeping host does not slow down with the memory. Only
where it alone would be longer than the clean step is all of the grouped step scaled alike: no group
takes less than no time.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from llmprof.analysis.fixed_cost import GroupFixedCost
from llmprof.analysis.group_times import GroupedStep
from llmprof.analysis.op_roof import OpRoof, op_roof
from llmprof.analysis.rates import Rates
from llmprof.schema.cost import OpCost, OpGroup, StepCost
from llmprof.schema.ledger import Part, Side
from llmprof.schema.verdict import Limit


@dataclass(frozen=True, slots=True)
class StepWork:
    """What a step has to do, whatever the clock says."""

    cost: StepCost
    fixed_cost: GroupFixedCost
    cache_bytes: int | None
    """Last-level cache; None where it is not known."""

    @property
    def variants(self) -> tuple["StepWork", ...]:
        """With each value that alpha may have, the measured one first."""
        return tuple(replace(self, fixed_cost=one) for one in self.fixed_cost.variants)

    def at(self, rates: Rates) -> "StepWork":
        """With alpha as it was read beside the round, where it was."""
        if rates.alpha_s is None:
            return self
        return replace(self, fixed_cost=replace(self.fixed_cost, alpha_s=rates.alpha_s))

    def of(self, group: OpGroup) -> tuple[OpCost, ...]:
        return tuple(op for op in self.cost.ops if op.group == group)

    def fixed_cost_s(self, group: OpGroup) -> float:
        return self.fixed_cost.group_s(group, sum(op.calls for op in self.of(group)))


@dataclass(frozen=True, slots=True)
class GroupSplit:
    """One op group: its time, its roof, and the longest term of that roof."""

    time_s: float
    fixed_cost_s: float
    roofs: tuple[OpRoof, ...]

    @property
    def memory_s(self) -> float:
        return sum(roof.memory_s for roof in self.roofs)

    @property
    def compute_s(self) -> float:
        return sum(roof.compute_s for roof in self.roofs)

    @property
    def link_s(self) -> float:
        return sum(roof.link_s for roof in self.roofs)

    @property
    def roof_s(self) -> float:
        return self.fixed_cost_s + self.link_s

    @property
    def loss_s(self) -> float:
        return self.time_s - self.roof_s

    def side_s(self, side: Side) -> float:
        """Link time of the ops on one side."""
        return sum(roof.link_s for roof in self.roofs if roof.side == side)

    @property
    def has_link(self) -> bool:
        """It multiplies matrices, or moves more that must cross memory than a cache may serve it.

        A norm reads its gains and an append writes a few keys, but what they work on is in cache.
        """
        if self.is_exchange:
            return True
        if any(roof.compute_s for roof in self.roofs):
            return True
        return sum(roof.roof_bytes for roof in self.roofs) > sum(
            roof.cached_bytes for roof in self.roofs
        )

    @property
    def is_exchange(self) -> bool:
        """It sums or copies between devices."""
        return any(roof.exchange_s is not None for roof in self.roofs)

    @property
    def side(self) -> Side | None:
        """The longer link; None for work in cache."""
        if not self.has_link:
            return None
        if self.is_exchange:
            return Side.COMMUNICATION
        compute = self.side_s(Side.COMPUTE)
        return Side.COMPUTE if compute > self.side_s(Side.MEMORY) else Side.MEMORY

    @property
    def is_small(self) -> bool:
        """Fixed cost explains most of its time, and is longer than the link if it has one."""
        link_s = self.link_s if self.has_link else 0.0
        return self.fixed_cost_s > max(link_s, self.time_s / 2)

    def limits_s(self) -> dict[Limit, float]:
        """The whole time by what limits it: fixed cost, work in cache, or sides in proportion."""
        if self.is_exchange:
            return {Limit.COMMUNICATION: self.time_s}
        if self.is_small:
            return {Limit.FIXED_COST: self.time_s}
        if not self.has_link:
            return {Limit.ELEMENTWISE: self.time_s}
        compute = self.side_s(Side.COMPUTE) / self.link_s
        return {Limit.MEMORY: self.time_s * (1 - compute), Limit.COMPUTE: self.time_s * compute}


@dataclass(frozen=True, slots=True)
class StepSplit:
    """A whole step: its groups, and what is left outside them."""

    step_s: float
    groups: Mapping[OpGroup, GroupSplit]
    host_s: float
    gaps_s: float | None
    """Device time outside every group; None without a device clock."""

    def parts_s(self) -> dict[Part, float]:
        """The parts that exist on this device; they sum to `step_s`."""
        parts = dict.fromkeys(
            (Part.MEMORY_WEIGHTS, Part.MEMORY_KV, Part.MEMORY_OTHER, Part.COMPUTE), 0.0
        )
        if any(group.is_exchange for group in self.groups.values()):
            parts[Part.COMMUNICATION] = 0.0
        for group in self.groups.values():
            for roof in group.roofs:
                for part, time_s in roof.link_by_part().items():
                    parts[part] += time_s
        parts[Part.FIXED_COST] = sum(group.fixed_cost_s for group in self.groups.values())
        parts[Part.LOSS] = sum(group.loss_s for group in self.groups.values())
        if self.gaps_s is not None:
            parts[Part.GAPS] = self.gaps_s
        parts[Part.HOST] = self.host_s
        return parts

    def limits_s(self) -> dict[Limit, float]:
        """The step by what limits it; gaps between kernels are time that the host left open."""
        limits: dict[Limit, float] = defaultdict(float)
        for group in self.groups.values():
            for limit, time_s in group.limits_s().items():
                limits[limit] += time_s
        limits[Limit.HOST] += self.host_s + (self.gaps_s or 0.0)
        return dict(limits)

    def link_s(self, limit: Limit) -> float:
        """Link time of the ops that `limit` counts: over its time it is how busy the link is."""
        side = Side.MEMORY if limit == Limit.MEMORY else Side.COMPUTE
        return sum(
            group.side_s(side)
            for group in self.groups.values()
            if group.has_link and not group.is_small and not group.is_exchange
        )

    def time_of(self, groups: Collection[OpGroup]) -> float:
        return sum(self.groups[group].time_s for group in groups if group in self.groups)

    def fraction_of(self, groups: Collection[OpGroup]) -> float:
        """Link time of these groups over their time; 0 for groups that were not seen to take any."""
        links_s = sum(self.groups[group].link_s for group in groups if group in self.groups)
        time_s = self.time_of(groups)
        return links_s / time_s if time_s > 0 else 0.0


def split_step(
    step_s: float, device_s: float | None, grouped: GroupedStep, work: StepWork, rates: Rates
) -> StepSplit:
    """Split a clean step of `step_s` (`device_s` on the device's clock) by the grouped times."""
    inner_s = step_s if device_s is None else device_s
    outside_s = grouped.outside_s
    if outside_s >= inner_s:
        outside_s *= inner_s / (outside_s + grouped.inside_s)
    scale = (inner_s - outside_s) / grouped.inside_s
    groups = {
        group: GroupSplit(
            time_s=time_s * scale,
            fixed_cost_s=work.fixed_cost_s(group),
            roofs=tuple(op_roof(op, rates, work.cache_bytes) for op in work.of(group)),
        )
        for group, time_s in grouped.group_s.items()
    }
    return StepSplit(
        step_s=step_s,
        groups=groups,
        host_s=outside_s if device_s is None else step_s - device_s,
        gaps_s=None if device_s is None else outside_s,
    )
