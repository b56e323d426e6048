"""What was changed on purpose to test a verdict, and what came of it."""

from enum import StrEnum

from pydantic import NonNegativeFloat, PositiveFloat

from llmprof.schema.ceilings import CeilingReading
from llmprof.schema.cost import Phase
from llmprof.schema.measurement import Estimate
from llmprof.schema.record import Record


class InterventionKind(StrEnum):
    """One thing that is changed while everything else stays."""

    HOST_SLEEP = "host_sleep"
    FEWER_THREADS = "fewer_threads"
    FEWER_SMS = "fewer_sms"
    """A part of a GPU's multiprocessors, both roofs measured in it."""
    LONGER_CONTEXT = "longer_context"
    CACHE_RESIDENT = "cache_resident"
    """Every layer reads the weights of the first one."""
    REPLAY = "replay"
    """The same kernels started from a recording (compiled on a CPU, or a CUDA graph) instead of from Python."""
    QUEUE_AHEAD = "queue_ahead"
    """The device is held back until a whole step is enqueued: kernels back to back."""


class Intervention(Record):
    """Raw: median steps of rounds in turn without and with the change. In the run file."""

    kind: InterventionKind
    phase: Phase
    change: str
    """In words: `2 threads -> 1`."""
    base_step_s: tuple[PositiveFloat, ...] = ()
    changed_step_s: tuple[PositiveFloat, ...] = ()
    """One per pair of rounds, in the same order."""
    base_readings: tuple[CeilingReading, ...] = ()
    changed_readings: tuple[CeilingReading, ...] = ()
    """Ceilings before and after the change, where it moves them."""
    added_host_s: NonNegativeFloat | None = None
    factor: PositiveFloat | None = None
    """Cached tokens of the changed step over those of the base."""
    resident_fraction: NonNegativeFloat | None = None
    """Share of the weight bytes that a step now finds in cache."""
    skipped: str | None = None
    """Why it was not made."""


class InterventionOutcome(Record):
    """What the verdict said would happen, and whether it did.

    Its numbers are ratios of the changed step to the base.
    """

    kind: InterventionKind
    change: str
    predicted_low: float | None
    predicted_high: float | None
    """The verdict's own forecast; both the same where it is a number."""
    rival: float | None
    """What a reader who does not believe the verdict would expect."""
    observed: Estimate | None
    survived: bool | None
    """Null where it was not made, or cannot tell the forecast from its rival."""
    words: str
