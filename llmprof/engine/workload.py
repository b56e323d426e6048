"""What the profiler can measure: the engine on a model, or any other repeatable work."""

from dataclasses import dataclass
from typing import Protocol

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.probe import Probe
from llmprof.schema.cost import Phase, StepCost
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.run import BatchUse, EngineDescription, KvUse, RequestSample, ServingEvent


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
    skinny_formats: tuple[WeightFormat, ...] = ()
    """How each of them is stored; empty where they are floats of `compute_dtype`."""


@dataclass(frozen=True, slots=True)
class StepUse:
    """How full cache and batch were in one step."""

    kv: KvUse | None = None
    batch: BatchUse | None = None


@dataclass(frozen=True, slots=True)
class RoundDetails:
    """What a round was beyond its steps' shapes and times."""

    steps: tuple[StepUse, ...] = ()
    """One per step, or none at all."""
    requests: tuple[RequestSample, ...] = ()
    events: tuple[ServingEvent, ...] = ()
    compiled_steps: int = 0
    """Decode steps that torch.compile was at work on in between."""


class Workload(Protocol):
    """Repeatable work, in rounds of steps that it announces to a probe."""

    model: ModelConfig | None
    weights: WeightManifest | None
    stated_costs: tuple[StepCost, ...]
    """Costs by phase where there is no model to derive them from."""
    needs: CeilingNeeds

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Those that occur, known at the latest after a round."""

    def run_round(self, probe: Probe) -> str | None:
        """Run one round from a fresh state; the return value is a hash over its output ids."""

    def lead_in(self) -> None:
        """A little of the same work, untimed: the round after it starts as from the middle of work.

        What ran before it, such as a reading of the ceilings, has taken the caches, and the threads
        have slept: without it the first step of a round would be timed in a state that steps of
        a server never see.
        """

    def round_details(self) -> RoundDetails:
        """Of the last round, finished or interrupted."""

    def describe(self) -> EngineDescription:
        """What really ran: kernels, dtypes, bytes."""
