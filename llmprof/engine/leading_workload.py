"""A workload whose every round is run by all ranks at once: the one that the first rank measures."""

from llmprof.engine.probe import Probe
from llmprof.engine.rank_group import RankGroup, Word
from llmprof.engine.workload import CeilingNeeds, RoundDetails, Workload
from llmprof.schema.cost import Phase, StepCost
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.run import EngineDescription


class LeadingWorkload:
    """Tells the other ranks before each round; everything else is the workload's own."""

    def __init__(self, workload: Workload, ranks: RankGroup) -> None:
        self._workload = workload
        self._ranks = ranks
        self.model: ModelConfig | None = workload.model
        self.weights: WeightManifest | None = workload.weights
        self.stated_costs: tuple[StepCost, ...] = workload.stated_costs
        self.needs: CeilingNeeds = workload.needs

    @property
    def phases(self) -> tuple[Phase, ...]:
        return self._workload.phases

    def lead_in(self) -> None:
        """As the workload's, on every rank."""
        self._ranks.announce(Word.LEAD_IN)
        self._workload.lead_in()

    def run_round(self, probe: Probe) -> str | None:
        """As the workload's, on every rank.

        Raises:
            MeasurementFailedError: also where another rank has gone.
        """
        self._ranks.announce(Word.ROUND)
        return self._workload.run_round(probe)

    def round_details(self) -> RoundDetails:
        return self._workload.round_details()

    def describe(self) -> EngineDescription:
        return self._workload.describe()
