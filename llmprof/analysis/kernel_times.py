"""Measured times of kernels by themselves: what a changed kernel is predicted from."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.prediction import KernelBenchmarks, KernelTime, OverheadTime


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """Microbenchmarks by phase and op group; those taken beside the run go before cached ones."""

    kernels: dict[tuple[Phase, OpGroup], KernelTime] = field(default_factory=dict)
    overheads: dict[tuple[Phase, OpGroup | None], OverheadTime] = field(default_factory=dict)
    """What starting the ops of a group costs. Of no group: what lies between them, or the whole step
    where nothing else of its phase is known."""

    @classmethod
    def of(cls, benchmarks: KernelBenchmarks, cached: Iterable[KernelTime] = ()) -> "KernelTimes":
        return cls(
            kernels={(one.phase, one.group): one for one in (*cached, *benchmarks.kernels)},
            overheads={(one.phase, one.group): one for one in benchmarks.overheads},
        )

    def of_group(self, phase: Phase, group: OpGroup) -> KernelTime | None:
        return self.kernels.get((phase, group))

    def overhead(self, phase: Phase, group: OpGroup | None) -> OverheadTime | None:
        return self.overheads.get((phase, group))

    def knows_overheads_by_group(self, phase: Phase) -> bool:
        return any(one == phase and group is not None for one, group in self.overheads)
