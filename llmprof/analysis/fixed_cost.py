"""Fixed cost of the op groups of a step: alpha, measured apart, times the ops in the group."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llmprof.schema.ceilings import FixedCost
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase
from llmprof.schema.settings import ExecutionMode, RunConfig

HAVE_LINKS = (*PROJECTIONS, OpGroup.ATTENTION)
"""Groups whose kernels stream memory or multiply; the others work on what caches hold."""


def in_graph(settings: RunConfig, phase: Phase) -> bool:
    """Whether the steps of `phase` are replays of a CUDA graph."""
    return settings.execution.mode is ExecutionMode.CUDA_GRAPH and phase is Phase.DECODE


@dataclass(frozen=True, slots=True)
class GroupFixedCost:
    """Alpha and the ops that it is paid for."""

    alpha_s: float
    spread: float
    """Interquartile range over median of what alpha was taken from."""
    ops: Mapping[OpGroup, int] | None
    """Operators that torch dispatched per group; None without a counting pass."""
    small_s: float | None = None
    """Alpha of the groups without a link, where it was measured apart."""

    @classmethod
    def of(
        cls, measured: FixedCost, ops: Mapping[OpGroup, int] | None, *, in_graph: bool = False
    ) -> "GroupFixedCost":
        """`in_graph`: of a step that is one CUDA graph, where that was measured."""
        alpha_s = measured.graph_s if in_graph else None
        small_s = measured.small_graph_s if in_graph else None
        return cls(
            measured.alpha_s if alpha_s is None else alpha_s,
            measured.spread,
            ops,
            measured.small_s if small_s is None else small_s,
        )

    def alpha_of(self, group: OpGroup) -> float:
        """Of one op of a group."""
        return self.alpha_s if self.small_s is None or group in HAVE_LINKS else self.small_s

    def group_s(self, group: OpGroup, calls: int) -> float:
        """Alpha x ops; without a counting pass each of the group's calls counts as one.

        The ceiling of a collective holds a fixed cost of its own.
        """
        if group is OpGroup.COMMUNICATION:
            return 0.0
        return self.alpha_of(group) * (calls if self.ops is None else self.ops.get(group, 0))

    @property
    def variants(self) -> tuple["GroupFixedCost", ...]:
        """As measured, then one interquartile range below and above it.

        What is read off alpha is no surer than alpha.
        """
        if not self.spread:
            return (self,)
        low, high = max(0.0, 1 - self.spread), 1 + self.spread
        return (self, *(self._scaled(factor) for factor in (low, high)))

    def _scaled(self, factor: float) -> "GroupFixedCost":
        small_s = None if self.small_s is None else self.small_s * factor
        return replace(self, alpha_s=self.alpha_s * factor, small_s=small_s)
