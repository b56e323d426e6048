"""The judged run: the document that renderers of a run read, and nothing else."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from llmprof.schema.cost import Phase, StepCost
from llmprof.schema.ledger import Ledger
from llmprof.schema.measurement import (
    Caveat,
    Estimate,
    LatencyMeasurement,
    PhaseMeasurement,
    Source,
)
from llmprof.schema.record import Record
from llmprof.schema.run import RunRecord
from llmprof.schema.verdict import Verdict


class RooflinePoint(Record):
    """A phase, or a part of one, on the roofline."""

    label: str
    """`prefill`, `decode`, `decode projections`, `decode attention`."""
    phase: Phase
    dtype: str
    flops: NonNegativeFloat
    bytes_required: NonNegativeFloat
    bytes_with_activations: NonNegativeFloat
    intensity_flops_per_byte: PositiveFloat
    """With required bytes only: the right end of the bar."""
    intensity_low_flops_per_byte: PositiveFloat
    """With every activation byte in memory: the left end."""
    achieved_flops_per_s: Estimate
    achieved_bytes_per_s: Estimate
    attainable_flops_per_s: PositiveFloat
    roof_fraction: Estimate
    """achieved / attainable against measured ceilings; above 1 is shown as it is."""
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


class Report(Record):
    schema_: Literal["llmprof.report/1"] = Field(default="llmprof.report/1", alias="schema")
    run: RunRecord
    roof: Roof | None
    """Null where no reading was taken: nothing is judged then."""
    phases: tuple[PhaseMeasurement, ...]
    latency: LatencyMeasurement
    costs: tuple[StepCost, ...]
    """One per phase, at its median step."""
    points: tuple[RooflinePoint, ...]
    ledgers: tuple[Ledger, ...]
    verdicts: tuple[Verdict, ...]
    caveats: tuple[Caveat, ...]
    headline: str
