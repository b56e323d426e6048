"""A grid of runs: one row per cell, whatever became of it."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from llmprof.schema.cost import ByteTraffic, Phase
from llmprof.schema.measurement import Estimate
from llmprof.schema.record import Record
from llmprof.schema.run import Tool
from llmprof.schema.settings import GridValue, RunConfig
from llmprof.schema.verdict import Limit, Saturation


class CellStatus(StrEnum):
    """What became of a cell."""

    PENDING = "pending"
    RUNNING = "running"
    """Being measured, or the process ended while it was."""
    MEASURED = "measured"
    PARTIAL = "partial"
    """Interrupted: the rounds so far are shown, and the next run of the sweep measures it again."""
    REFUSED = "refused"
    """Cannot fit or cannot be done; nothing was loaded."""
    FAILED = "failed"
    """Ran out of memory, or broke, while it was measured."""


class SweepAxis(Record):
    key: str
    """Dotted, as in a settings file."""
    values: tuple[GridValue, ...] = Field(min_length=1)


class PhaseMetrics(Record):
    """One phase of a cell, at its median step."""

    phase: Phase
    num_sequences: PositiveInt
    context_tokens: int
    step_s: Estimate
    new_tokens_per_s: Estimate
    """All sequences together."""
    roof_fraction: Estimate | None
    """Of the ceilings measured between the rounds; null where nothing was judged."""
    limit: Limit | None
    saturation: Saturation | None
    traffic: ByteTraffic | None
    """Bytes per step by kind, counted from shapes."""
    kv_bytes_share: float | None
    """Reading and writing the KV cache, over all bytes that count toward the roof."""
    kv_time_share: float | None
    """The ledger's share of the KV cache in the step's time; null without a grouped pass."""


class CellMetrics(Record):
    """What a cell's run says, computed from its run files."""

    phases: tuple[PhaseMetrics, ...]
    output_tokens_per_s: Estimate | None
    """All sequences together: of a trace over whole rounds, else of the decode steps."""
    ttft_s: Estimate | None
    tpot_s: Estimate | None
    weight_bytes: NonNegativeInt
    kv_peak_bytes: NonNegativeInt
    """Most that held tokens at once."""
    kv_reserved_bytes: NonNegativeInt
    """Of the whole store."""
    device_peak_bytes: NonNegativeInt | None
    """Most memory in use on the GPU between rounds, by all processes; null on a CPU, where a process
    does not tell what a single cell took."""
    power_w: NonNegativeFloat | None
    """Median of the readings after the rounds; null without such a sensor."""
    num_rounds: NonNegativeInt
    num_rejected_rounds: NonNegativeInt
    """Disturbed ones, of those: they count in nothing, unless every round was disturbed."""
    disturbed_by: tuple[str, ...] = ()
    """What was wrong with them, each reason once; empty in sweeps of versions that did not keep it."""
    caveats: tuple[str, ...]
    """Their codes."""

    @property
    def disturbed(self) -> bool:
        """No valid round: the figures are those of disturbed ones, and nothing is judged by them."""
        return 0 < self.num_rounds <= self.num_rejected_rounds

    def of(self, phase: Phase) -> PhaseMetrics | None:
        return next((one for one in self.phases if one.phase is phase), None)


class SweepCell(Record):
    index: NonNegativeInt
    """In the order of the grid: the last axis varies fastest."""
    changes: dict[str, GridValue]
    """One value per axis."""
    status: CellStatus = CellStatus.PENDING
    reason: str | None = None
    """Why it was refused, failed or interrupted."""
    exit_code: int | None = None
    """Of `llmprof run` with these settings, where that is refused or fails."""
    predicted_round_s: NonNegativeFloat | None = None
    """Least time of a round at the cached ceilings, from shapes: the order of the cells. Null where
    it could not be worked out."""
    attempts: NonNegativeInt = 0
    """Times that measuring it was begun since it was last finished."""
    run_ids: tuple[str, ...] = ()
    """Of its run files, one per visit."""
    metrics: CellMetrics | None = None


class BatchChoice(Record):
    """What the batch axis says where every other axis stands still."""

    key: str
    """`workload.batch` or `batching.max_sequences`."""
    others: dict[str, GridValue]
    knee: GridValue
    """Where throughput over latency is largest: output tok/s over TPOT (Kleinrock's power)."""
    knee_at_edge: bool
    """The knee is the largest value measured, so it may lie beyond."""
    largest_within: GridValue
    """Largest value that keeps the limits of the sweep with its whole interval; null where none does
    or no limit was set."""


class Sweep(Record):
    schema_: Literal["llmprof.sweep/1"] = Field(default="llmprof.sweep/1", alias="schema")
    id: str
    """The same for the same settings, model, machine and software."""
    created: datetime
    updated: datetime
    status: Literal["complete", "partial"]
    status_reason: str | None = None
    tool: Tool
    base: RunConfig
    """What the cells have in common; its `sweep` has the axes and the limits."""
    model_name: str
    device: str
    device_name: str
    fingerprint: str
    """Of the environment, as in the run files."""
    axes: tuple[SweepAxis, ...]
    cells: tuple[SweepCell, ...]
    choices: tuple[BatchChoice, ...] = ()
