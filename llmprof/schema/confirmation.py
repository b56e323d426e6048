"""A prediction beside what was measured afterwards, and where the two differ."""

from datetime import datetime
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.measurement import Caveat, Estimate
from llmprof.schema.prediction import Prediction
from llmprof.schema.record import Record


class GroupResidual(Record):
    """Measured minus predicted time of one op group; null group: the time between them."""

    group: OpGroup | None
    base_s: float | None
    predicted_s: float
    """Scaled by how the base itself moved between its run and the pairs."""
    measured_s: float
    residual_s: float


class PhaseConfirmation(Record):
    phase: Phase
    predicted_speedup: float
    predicted_low: float
    predicted_high: float
    speedup: Estimate
    """Base over target, pair by pair."""
    inside: bool
    """Whether the measured point lies in the predicted interval."""
    error: float
    """Predicted over measured speedup, minus 1."""
    byte_ratio: float
    """Bytes that must move in the base's step over those in the target's."""
    residuals: tuple[GroupResidual, ...]
    """Largest first; they sum to the difference of the steps."""
    sentence: str


class OutputComparison(Record):
    """The tokens of both arms."""

    same: bool | None
    """Null where the two were not asked for the same tokens."""
    tokens: NonNegativeInt = 0
    equal_tokens: NonNegativeInt = 0
    first_difference: PositiveInt | None = None
    """Output token, counted from 1, at which the first of the sequences goes another way."""
    reason: str | None = None


class Confirmation(Record):
    schema_: Literal["llmprof.confirmation/1"] = Field(
        default="llmprof.confirmation/1", alias="schema"
    )
    prediction: Prediction
    predicted_at: datetime
    """Written to disk then, before the target was loaded."""
    measured_at: datetime
    base_run: str
    target_run: str
    """Ids of the paired runs."""
    pairs: NonNegativeInt
    phases: tuple[PhaseConfirmation, ...]
    outputs: OutputComparison
    caveats: tuple[Caveat, ...] = ()
