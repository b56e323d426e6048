"""Fixed cost of the op groups of a step: alpha, measured apart, times the ops in the group."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llmprof.schema.ceilings import FixedCost
from llmprof.schema.cost import OpGroup


@dataclass(frozen=True, slots=True)
class GroupFixedCost:
    """Alpha and the ops that it is paid for."""

    alpha_s: float
    spread: float
    """Interquartile range over median of what alpha was taken from."""
    ops: Mapping[OpGroup, int] | None
    """Operators that torch dispatched per group; None without a counting pass."""

    @classmethod
    def of(
        cls, measured: FixedCost, ops: Mapping[OpGroup, int] | None, *, in_graph: bool = False
    ) -> "GroupFixedCost":
        """`in_graph`: of a step that is one CUDA graph, where that was measured."""
        alpha_s = measured.graph_s if in_graph else None
        return cls(measured.alpha_s if alpha_s is None else alpha_s, measured.spread, ops)

    def group_s(self, group: OpGroup, calls: int) -> float:
        """Alpha x ops; without a counting pass each of the group's calls counts as one.

        The ceiling of a collective holds a fixed cost of its own.
        """
        if group is OpGroup.COMMUNICATION:
            return 0.0
        return self.alpha_s * (calls if self.ops is None else self.ops.get(group, 0))

    @property
    def variants(self) -> tuple["GroupFixedCost", ...]:
        """As measured, then one interquartile range below and above it.

        What is read off alpha is no surer than alpha.
        """
        if not self.spread:
            return (self,)
        low, high = max(0.0, 1 - self.spread), 1 + self.spread
        return (self, *(replace(self, alpha_s=self.alpha_s * factor) for factor in (low, high)))
