"""What a gate and the worker processes of its arms say to each other: one JSON object per line.

Requests are `{"do": "open", "settings": {...}}`, `{"do": "turn", "seconds": 0.5}`, `{"do": "count"}`;
end of input ends the worker. A reply is one of the records below.
"""

from typing import Final

from pydantic import NonNegativeFloat

from llmprof.schema.environment import Environment
from llmprof.schema.model import ModelConfig
from llmprof.schema.record import Record
from llmprof.schema.run import EngineDescription, Round, RunRecord

PROTOCOL: Final = 1
"""Base and candidate may be of different versions of llmprof; they must agree in this."""


class ArmDescription(Record):
    """The reply to `open`: what is loaded and warm."""

    protocol: int
    environment: Environment
    model: ModelConfig | None
    engine: EngineDescription
    output_sha256: str | None
    """Over the output ids of a round; every round must give the same."""
    output_tokens: tuple[tuple[int, ...], ...] | None = None
    """Those ids, [sequence][step]; null for served requests, and from older versions."""
    settled: bool
    """Two rounds of the warm-up agreed in every phase."""


class Turn(Record):
    """The reply to `turn`: rounds one after the other."""

    rounds: tuple[Round, ...]


class ArmCounters(Record):
    """The reply to `count`: metrics that are judged without statistics."""

    values: dict[str, NonNegativeFloat]


class WholeRun(Record):
    """The reply to `profile`: a run from loading to counting, in a process that lives for it alone."""

    record: RunRecord
    output_tokens: tuple[tuple[int, ...], ...] | None
    """Ids [sequence][step] of its last round; null for served requests, which keep none."""


class ArmFailure(Record):
    """The reply to anything that failed: an error for a person, by the name of its class."""

    error: str
    message: str
    remedy: str | None = None
