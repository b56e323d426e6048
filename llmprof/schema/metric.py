"""The quantities that two runs are compared by, and a gate judges: one name each, in base units."""

from enum import StrEnum

from llmprof.schema.record import Record


class Unit(StrEnum):
    SECONDS = "s"
    TOKENS_PER_S = "tokens_per_s"
    FRACTION = "fraction"
    BYTES = "bytes"
    COUNT = "count"


class Better(StrEnum):
    LOWER = "lower"
    HIGHER = "higher"


class MetricKind(StrEnum):
    TIMED = "timed"
    """Varies from round to round: judged by statistics."""
    EXACT = "exact"
    """Follows from the settings and the code: any difference is real."""
    PEAK = "peak"
    """The highest of a process: one number per launch, the same but for the allocator's whims."""


class Metric(Record):
    name: str
    """`decode.tpot_s.p50`, `kv_cache.bytes_per_token`, ..."""
    unit: Unit
    better: Better
    kind: MetricKind
