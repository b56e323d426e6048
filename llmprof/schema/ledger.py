"""The split of a step's time (reference: roofline per kernel, README, Method)."""

from enum import StrEnum
from typing import Final

from llmprof.schema.cost import ByteTraffic, OpGroup, Phase
from llmprof.schema.measurement import Estimate
from llmprof.schema.record import Record


class Side(StrEnum):
    """The longer of a kernel's two links, or the one between devices."""

    MEMORY = "memory"
    COMPUTE = "compute"
    COMMUNICATION = "communication"


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

    @property
    def label(self) -> str:
        """What people read."""
        return _PART_LABELS.get(self, self.value.replace("_", " "))


_PART_LABELS: Final = {
    Part.MEMORY_WEIGHTS: "weights",
    Part.MEMORY_KV: "KV cache",
    Part.MEMORY_OTHER: "other memory",
}


class PartTime(Record):
    """A part at the median step.

    Its ceilings are those that make the least time of the whole step over its time the phase's roof
    fraction, which is the median of per-round ratios: parts and fraction agree.
    """

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
    """Its spread is in the interval of the part and of the loss."""
    roof_s: float
    """fixed cost + the longer of memory and compute, per op."""
    loss_s: Estimate
    """time - roof: negative by noise or because a count is wrong."""
    side: Side | None
    """The longer link; null for work in cache, which has none worth the name."""
    flops: float
    traffic: ByteTraffic
    roof_bytes: float
    """Of the traffic, what counts toward the roof: weights and KV, and what one call hands to the
    next op where that is more than the last-level cache."""
    exchange_s: float = 0.0
    """Of collectives, at their measured ceilings: alpha of each call and its bytes over the bandwidth."""
    exchanged_bytes: float = 0.0
    """Of one device's buffers."""


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
