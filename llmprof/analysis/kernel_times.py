"""Measured times of kernels by themselves: what a changed kernel is predicted from."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.prediction import KernelBenchmarks, KernelTime


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """Microbenchmarks by phase and op group; those taken beside the run go before cached ones."""

    kernels: dict[tuple[Phase, OpGroup], KernelTime] = field(default_factory=dict)
    overhead_s: dict[tuple[Phase, OpGroup | None], float] = field(default_factory=dict)
    """What starting the ops of a group costs less in the target than in the base."""

    @classmethod
    def of(cls, benchmarks: KernelBenchmarks, cached: Iterable[KernelTime] = ()) -> "KernelTimes":
        return cls(
            kernels={(one.phase, one.group): one for one in (*cached, *benchmarks.kernels)},
            overhead_s={
                (one.phase, one.group): one.base_s - one.target_s for one in benchmarks.overheads
            },
        )

    def of_group(self, phase: Phase, group: OpGroup) -> KernelTime | None:
        return self.kernels.get((phase, group))

    def saved_s(self, phase: Phase, group: OpGroup | None) -> float:
        return self.overhead_s.get((phase, group), 0.0)

    def knows_overheads(self, phase: Phase) -> bool:
        return any(one == phase for one, _ in self.overhead_s)
