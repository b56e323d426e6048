"""Estimates with their uncertainty, and the caveats that travel with them."""

from enum import StrEnum
from typing import Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from llmprof.schema.cost import Phase
from llmprof.schema.record import Record


class Source(StrEnum):
    """Where a number came from. Every number says."""

    COUNTED = "counted"
    MEASURED = "measured"
    GPM = "gpm"
    NCU = "ncu"
    DATASHEET = "datasheet"
    PREDICTED = "predicted"
    ASSUMED = "assumed"


class Caveat(Record):
    """Something the reader must know to read a number correctly. Not an error."""

    code: str
    """Stable and short: `random-weights`, `contended`, `above-roof`, ..."""
    message: str
    remedy: str | None = None
    phase: Phase | None = None
    """The phase whose numbers it qualifies; null for the whole run."""


class Estimate(Record):
    """A point estimate and its interval, in the unit that its field is named for."""

    point: float
    low: float
    high: float
    confidence: float = Field(ge=0, lt=1)
    """True coverage of the interval, not the one asked for: 0 for a single sample."""
    num_samples: PositiveInt

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low <= self.point <= self.high:
            raise ValueError("expected low <= point <= high")
        return self


class PhaseMeasurement(Record):
    """How one phase behaved over all rounds."""

    phase: Phase
    num_steps: PositiveInt
    num_rounds: PositiveInt
    num_rejected_rounds: NonNegativeInt = 0
    num_sequences: PositiveInt
    context_tokens: int
    """Tokens per sequence that the median step attends to: cached and new ones."""
    step_s: Estimate
    """Median over rounds of the round's median step."""
    step_spread: float
    """Interquartile range over median of single steps (of fewer than six the range over it): within
    a round, median over rounds, growth with the context taken out; between rounds where each has
    one step."""
    new_tokens_per_s: Estimate
    """All sequences together: prompt tok/s in prefill, output tok/s in decode, both in mixed steps.
    Tokens that are computed again (no KV cache) and padding do not count."""
    new_tokens_per_s_per_sequence: Estimate


class LatencyMeasurement(Record):
    """What a user of the engine felt; null where the workload has no such thing."""

    ttft_s: Estimate | None
    tpot_s: Estimate | None
    """(end-to-end latency - TTFT) / (output tokens - 1); null for a single output token."""
    itl_s: Estimate | None
