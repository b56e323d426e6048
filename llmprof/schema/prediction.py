"""What a run would take under other settings or on another device, before it is measured."""

from enum import StrEnum
from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from llmprof.schema.cost import OpGroup, Phase, StepShape
from llmprof.schema.ledger import Part
from llmprof.schema.measurement import Caveat, Estimate
from llmprof.schema.record import Record
from llmprof.schema.settings import RunConfig
from llmprof.schema.verdict import Limit


class Tier(StrEnum):
    """What a prediction rests on."""

    A = "A"
    """Ceilings and the model alone."""
    B = "B"
    """A run beside them, but on another device, or of a kernel whose roof nobody measured."""
    C = "C"
    """A run, and a measured roof of every kernel that changes."""


class Interval(Record):
    """Meant to hold what is measured later in nine cases of ten."""

    point: float
    low: float
    high: float


class SettingChange(Record):
    key: str
    """Dotted: `weights.quantization`."""
    base: str
    target: str


class KernelTime(Record):
    """One op group's kernels by themselves, as a step calls them, in both settings."""

    phase: Phase
    group: OpGroup
    base_s: PositiveFloat
    target_s: PositiveFloat
    spread: NonNegativeFloat
    """Of the ratio, relative: what the repeats leave open."""
    method: str
    base_phase: Phase | None = None
    """Of the base's steps that ran the target's kernel, where those of `phase` ran another one."""


class OverheadTime(Record):
    """What starting a group's ops costs, measured on ops too small to take time themselves."""

    phase: Phase
    group: OpGroup | None
    """Null for what lies between the groups."""
    base_s: float
    target_s: float


class KernelBenchmarks(Record):
    """Microbenchmarks of what changes, taken before the target runs."""

    kernels: tuple[KernelTime, ...] = ()
    overheads: tuple[OverheadTime, ...] = ()


class GroupPrediction(Record):
    """One op group of a step; `group` is null for the time between the groups."""

    group: OpGroup | None
    base_s: float | None
    predicted_s: Interval
    basis: str
    """How it was worked out, in words."""
    is_measured: bool = True
    """Whether every kernel in it has a roof that was measured."""


class PartPrediction(Record):
    part: Part
    base_s: float | None
    predicted_s: float


class StepPlace(Record):
    """A step on the roofline: what it computes and must move, and the ceilings above it."""

    flops: NonNegativeFloat
    bytes_required: PositiveFloat
    read_bytes_per_s: PositiveFloat
    matmul_flops_per_s: PositiveFloat
    matmul_dtype: str
    """Of most of the FLOPs."""


class NaiveForecasts(Record):
    """What simpler rules say, so that a reader sees what the ledger adds."""

    byte_ratio_step_s: float | None
    """The base's time x bytes that must move now / then; null without a base."""
    roofline_step_s: float
    """The base's time x (the longer of all bytes and all FLOPs at the ceilings, now / then); that time
    itself without a base."""


class PhasePrediction(Record):
    phase: Phase
    tier: Tier
    shape: StepShape
    """The median step of the target."""
    base_step_s: Estimate | None
    step_s: Interval
    speedup: Interval | None
    """Base time over predicted time; null without a base."""
    new_tokens_per_s: Interval
    limit: Limit
    """The largest share of the predicted step."""
    limit_share: float
    groups: tuple[GroupPrediction, ...]
    parts: tuple[PartPrediction, ...]
    naive: NaiveForecasts
    base_place: StepPlace | None = None
    """Null without a base, and in older files."""
    place: StepPlace | None = None


class Capacity(Record):
    """Whether the target fits into memory."""

    available_bytes: NonNegativeInt
    weight_bytes: NonNegativeFloat
    kv_bytes: NonNegativeFloat
    activation_bytes: NonNegativeFloat
    fits: bool
    """Whether `asked_batch` does; the phases are those of `largest_batch` where it does not."""
    asked_batch: NonNegativeInt
    largest_batch: NonNegativeInt
    """Sequences of this length that fit; 0 where not one does."""


class Prediction(Record):
    schema_: Literal["llmprof.prediction/1"] = Field(default="llmprof.prediction/1", alias="schema")
    tier: Tier
    """The weakest of the phases."""
    base: str
    """Id of the run, or the model where there is none."""
    device: str
    changes: tuple[SettingChange, ...]
    settings: RunConfig
    """Of the target."""
    capacity: Capacity
    phases: tuple[PhasePrediction, ...]
    """Empty where the target does not fit."""
    benchmarks: KernelBenchmarks
    assumptions: tuple[str, ...]
    caveats: tuple[Caveat, ...] = ()
    argv: tuple[str, ...] = ()
    """The command that made it; empty where it is a part of a measurement, which has its own."""
