"""The split of a step's time (reference: roofline per kernel, README, Method)."""

from enum import StrEnum

from llmprof.schema.cost import ByteTraffic, OpGroup, Phase
from llmprof.schema.measurement import Estimate
from llmprof.schema.record import Record


class Side(StrEnum):
    """The longer of a kernel's two links."""

    MEMORY = "memory"
    COMPUTE = "compute"


class Part(StrEnum):
    """The parts that a step's time is split into."""

    MEMORY_WEIGHTS = "memory_weights"
    MEMORY_KV = "memory_kv"
    MEMORY_OTHER = "memory_other"
    COMPUTE = "compute"
    FIXED_COST = "fixed_cost"
    LOSS = "loss"
    GAPS = "gaps"
    COMMUNICATION = "communication"
    HOST = "host"


class PartTime(Record):
    part: Part
    time_s: Estimate
    share: float
    """Of the step's time; negative where the part is (shown, never clipped)."""


class GroupEntry(Record):
    """One op group in one step: its time, its roof and what lies between them."""

    group: OpGroup
    ops: int | None
    """Operators that torch dispatched; null without a counting pass."""
    time_s: Estimate
    """Grouped pass, scaled to the clean step."""
    memory_s: float
    """Bytes over the read ceiling."""
    compute_s: float
    """FLOPs over the matmul ceiling of the dtype computed in."""
    fixed_cost_s: float
    roof_s: float
    """fixed cost + the longer of memory and compute, per op."""
    loss_s: Estimate
    """time - roof: negative by noise or because a count is wrong."""
    side: Side
    flops: float
    traffic: ByteTraffic


class HiddenTerm(Record):
    """Work that costs no time now because something longer runs beside it."""

    name: str
    time_s: float
    under: str


class Sensitivity(Record):
    """Milliseconds per step that one per cent less of something would give."""

    of: str
    seconds_per_percent: float


class Ledger(Record):
    """Where one step of a phase spends its time."""

    phase: Phase
    step_s: Estimate
    grouped_scale: float
    """Clean step over grouped step; far from 1 means that the instruments disturb."""
    parts: tuple[PartTime, ...]
    groups: tuple[GroupEntry, ...]
    hidden: tuple[HiddenTerm, ...]
    sensitivities: tuple[Sensitivity, ...]
