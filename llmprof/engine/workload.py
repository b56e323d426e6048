"""What the profiler can measure: the engine on a model, or any other repeatable work."""

from dataclasses import dataclass
from typing import Protocol

from llmprof.engine.probe import Probe
from llmprof.schema.cost import Phase, StepCost
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.run import EngineDescription


@dataclass(frozen=True, slots=True)
class CeilingNeeds:
    """What the live ceilings must look like for this work."""

    working_set_bytes: int
    """Bytes that a steady step reads: the level of memory that serves it follows from this."""
    compute_dtype: str
    skinny_rows: int | None
    """Rows of a decode step's projections; None where there are none."""
    skinny_shapes: tuple[tuple[int, int], ...]
    """[out_features, in_features] of the projections that a decode step multiplies by."""


class Workload(Protocol):
    """Repeatable work, in rounds of steps that it announces to a probe."""

    model: ModelConfig | None
    weights: WeightManifest | None
    stated_costs: tuple[StepCost, ...]
    """Costs by phase where there is no model to derive them from."""
    phases: tuple[Phase, ...]
    needs: CeilingNeeds

    def run_round(self, probe: Probe) -> str | None:
        """Run one round from a fresh state; the return value is a hash over its output ids."""

    def describe(self) -> EngineDescription:
        """What really ran: kernels, dtypes, bytes."""
