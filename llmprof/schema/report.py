"""The judged run: the document that renderers of a run read, and nothing else."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from llmprof.schema.cost import Phase, StepCost
from llmprof.schema.datasheet import Datasheet
from llmprof.schema.ledger import Ledger
from llmprof.schema.levers import Levers
from llmprof.schema.measurement import (
    Caveat,
    Estimate,
    LatencyMeasurement,
    PhaseMeasurement,
    Source,
)
from llmprof.schema.ops import PhaseOps
from llmprof.schema.record import Record
from llmprof.schema.run import RunRecord
from llmprof.schema.serving import ServingMeasurement
from llmprof.schema.timeline import Timeline
from llmprof.schema.verdict import Verdict


class RooflinePoint(Record):
    """A phase, or a part of one, on the roofline."""

    label: str
    """`prefill`, `decode`, `decode projections`, `decode attention`."""
    phase: Phase
    dtype: str
    flops: NonNegativeFloat
    bytes_required: NonNegativeFloat
    """What counts toward the roof: weights and KV, and what one call hands to the next op
    (activations, scores, logits, copies) where that is more than the last-level cache."""
    bytes_with_activations: NonNegativeFloat
    """Every byte, as if no cache held what one op hands to the next."""
    intensity_flops_per_byte: PositiveFloat
    """With required bytes only: the right end of the bar."""
    intensity_low_flops_per_byte: PositiveFloat
    """With every byte in memory: the left end."""
    achieved_flops_per_s: Estimate
    achieved_bytes_per_s: Estimate
    attainable_flops_per_s: PositiveFloat
    """At the ceilings of the rounds: achieved over attainable is the roof fraction, point by point."""
    roof_fraction: Estimate
    """Least time over time: of a phase the median of per-round ratios to the adjacent readings, of a
    part of it at the median step. Above 1 is shown as it is."""
    time_share: float
    """Of the phase's step."""
    mfu: float | None
    mbu: float | None
    """Ratios to the datasheet peak; null where no peak is known."""
    cost_source: Source = Source.COUNTED


class Roof(Record):
    """The ceilings that the points were judged by: medians of the live readings."""

    read_bytes_per_s: Estimate
    read_level: str
    read_kernel: str
    matmul_flops_per_s: Estimate
    matmul_dtype: str
    ridge_flops_per_byte: PositiveFloat
    skinny_bytes_per_s: Estimate | None
    skinny_rows: int | None
    skinny_kernel: str | None
    alpha_s: NonNegativeFloat


class OwnCostShare(Record):
    """What the instruments cost a step: calls x what each takes, measured, and sensors' CPU time."""

    phase: Phase
    step_s: PositiveFloat
    """Of the clean pass."""
    clean_s: NonNegativeFloat
    """In a step of the clean pass, which every figure rests on; nothing is subtracted from it."""
    clean_fraction: NonNegativeFloat
    grouped_s: NonNegativeFloat | None
    """What a step of the grouped pass holds beyond it, which is subtracted; null without one."""


class Report(Record):
    schema_: Literal["llmprof.report/1"] = Field(default="llmprof.report/1", alias="schema")
    run: RunRecord
    roof: Roof | None
    """Null where no reading was taken: nothing is judged then."""
    phases: tuple[PhaseMeasurement, ...]
    latency: LatencyMeasurement
    serving: ServingMeasurement | None = None
    """Null for work of a fixed shape."""
    costs: tuple[StepCost, ...]
    """One per phase, at its median step."""
    points: tuple[RooflinePoint, ...]
    ledgers: tuple[Ledger, ...]
    own_cost: OwnCostShare | None = None
    """Of a decode step, or of the only phase there is; null where no step ran."""
    ops: tuple[PhaseOps, ...] = ()
    """Empty without a tracing pass."""
    verdicts: tuple[Verdict, ...]
    caveats: tuple[Caveat, ...]
    headline: str
    energy_per_token_j: Estimate | None = None
    """Of the whole device, per prompt or output token; null where it has no such counter. From readings of
    its power where the run's `energy` says so."""
    levers: Levers | None = None
    """Null for work that cannot be predicted."""
    datasheet: Datasheet | None = None
    """What the vendor states about the device; null where the table does not know it, or where the
    run had a part of it only."""
    no_datasheet: str | None = None
    """Why there is none: then there is no MFU and no MBU either."""
    timeline: Timeline | None = None
    """For figures: one response, one round, its requests. Null in a report of an older version."""
