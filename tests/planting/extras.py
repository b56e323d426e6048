"""A workload whose rounds take turns: as it is, then with one known extra cost after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llmprof.engine.probe import Probe, wants_groups
from llmprof.engine.workload import RoundDetails, Workload
from llmprof.instruments.clock import Clock
from llmprof.instruments.injection import ExtraWork, HostSleep
from llmprof.schema.cost import OpCost, Phase, StepCost
from llmprof.schema.ledger import Part
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.run import EngineDescription


@dataclass(slots=True)
class Extra:
    """A known cost in every decode step, and the part of the ledger that must show it."""

    name: str
    part: Part
    work: Callable[[], object] | None = None
    cost: OpCost | None = None
    """Of the work; None for a sleep of the host."""
    ops: int = 0
    """Operators that torch dispatches for the work."""
    sleep_s: float = 0.0
    taken_s: list[float] = field(default_factory=list)
    """By the clock around the work alone, step by step."""

    def around(self, probe: Probe, clock: Clock | None) -> Probe:
        if self.work is None:
            self.taken_s.append(self.sleep_s)
            return HostSleep(probe, self.sleep_s, busy=True, clock=clock)
        return ExtraWork(probe, self.work, taken_s=self.taken_s, clock=clock)


class TakingTurns:
    """Measured rounds in turn: none, first extra, second extra, ..., each clean and grouped.

    Warm-up and counting run without any. Interleaved so, all arms share the machine's drift.
    """

    def __init__(
        self,
        workload: Workload,
        cost: StepCost,
        extras: Sequence[Extra],
        *,
        clock: Clock | None = None,
    ) -> None:
        """`cost` is that of a decode step without extras."""
        self.model: ModelConfig | None = None
        self.weights: WeightManifest | None = None
        self.stated_costs: tuple[StepCost, ...] = (cost,)
        self.needs = workload.needs
        self.extras = tuple(extras)
        self._workload = workload
        self._clock = clock
        self._counted = False
        self._rounds = 0

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (Phase.DECODE,)

    @property
    def arms(self) -> int:
        return 1 + len(self.extras)

    def measured_rounds_follow(self) -> None:
        """From here on rounds take turns."""
        self._counted, self._rounds = True, 0

    def lead_in(self) -> None:
        self._workload.lead_in()

    def run_round(self, probe: Probe) -> str | None:
        """A clean and a grouped round of the same arm follow each other."""
        arm = 0
        if self._counted:
            arm = self._rounds // 2 % self.arms
            self._rounds += 1
        extra = self.extras[arm - 1] if arm else None
        self._workload.run_round(probe if extra is None else extra.around(probe, self._clock))
        if not self._counted and wants_groups(probe):
            self.measured_rounds_follow()  # that was the counting pass, the last before them
        return None

    def round_details(self) -> RoundDetails:
        return RoundDetails()

    def describe(self) -> EngineDescription:
        return self._workload.describe()
