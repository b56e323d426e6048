"""What limits each phase, how saturated that link is, and what speaks for it."""

from enum import StrEnum

from llmprof.schema.cost import Phase
from llmprof.schema.intervention import InterventionOutcome
from llmprof.schema.ledger import Part
from llmprof.schema.measurement import Estimate
from llmprof.schema.record import Record


class Limit(StrEnum):
    """The first answer: what a step's time goes to."""

    MEMORY = "memory"
    COMPUTE = "compute"
    FIXED_COST = "fixed_cost"
    ELEMENTWISE = "elementwise"
    """Work in cache: norms, rotations, activations, copies of what was just computed. No matrix
    product, and less traffic that must cross memory than bytes that a cache may hold."""
    HOST = "host"
    COMMUNICATION = "communication"
    MIXTURE = "mixture"
    INCONCLUSIVE = "inconclusive"


class Saturation(StrEnum):
    """The second answer: how busy the limiting link is while it limits."""

    SATURATED = "saturated"
    UNSATURATED = "unsaturated"
    KERNEL_LIMITED = "kernel_limited"
    UNKNOWN = "unknown"


class Evidence(Record):
    """One checked statement that a verdict rests on."""

    statement: str
    observed: float
    threshold: float
    supports: bool


class LimitShare(Record):
    """Share of a step's time: of one side with its loss and fixed cost, or of host, gaps, ..."""

    limit: Limit
    share: Estimate


class Verdict(Record):
    phase: Phase
    limit: Limit
    limits: tuple[LimitShare, ...]
    """All, largest first: sides of the roof, host, communication."""
    parts_named: tuple[Part, ...]
    """The largest part of the ledger and every other of at least 15 %."""
    saturation: Saturation
    saturation_fraction: Estimate | None
    """Achieved over ceiling of the limiting side's kernels; null where no side limits."""
    roof_fraction: Estimate | None
    """Roof time of the whole step over its time, per-round ratios to the adjacent readings."""
    sentence: str
    """Both answers with their numbers, in plain words."""
    reasons: tuple[str, ...] = ()
    """Why it is inconclusive, or what modifies it."""
    evidence: tuple[Evidence, ...] = ()
    interventions: tuple[InterventionOutcome, ...] = ()
    """What was changed to test it, and whether its forecast held."""
