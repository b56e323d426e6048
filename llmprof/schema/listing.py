"""The saved runs of a folder: what `llmprof ls` prints."""

from datetime import datetime
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from llmprof.schema.record import Record


class RunSummary(Record):
    """One saved run, from the few keys that name it; all but the file are null where unreadable."""

    id: str
    file: str
    status: Literal["complete", "partial", "unreadable"]
    created: datetime | None = None
    model: str | None = None
    device: str | None = None
    dtype: str | None = None
    """Computed in."""
    batch: PositiveInt | None = None
    prompt_tokens: PositiveInt | None = None
    output_tokens: PositiveInt | None = None
    decode_step_s: NonNegativeFloat | None = None
    """Median over rounds of a round's median decode step, over the rounds that a report uses."""
    reason: str | None = None
    """Why it is partial or cannot be read."""


class Listing(Record):
    schema_: Literal["llmprof.listing/1"] = Field(default="llmprof.listing/1", alias="schema")
    folder: str
    runs: tuple[RunSummary, ...]
    """Oldest first."""
