"""How far two launches of the same code differ on this machine: what `gate calibrate` found."""

from datetime import datetime
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from llmprof.schema.record import Record


class MetricNoise(Record):
    name: str
    pair_spread: NonNegativeFloat
    """Standard deviation of the log ratios of A/A pairs."""
    num_pairs: PositiveInt
    launch_spread: NonNegativeFloat | None
    """Standard deviation of the logarithms of launch medians; null for fewer than four launches."""
    num_launches: PositiveInt
    paired_floor: NonNegativeFloat
    """Least relative difference that a gate of paired rounds can show, by the launches of its pairs."""
    launch_floor: NonNegativeFloat | None
    """Least relative difference that one saved run can show against another."""
    pair_launch_spread: NonNegativeFloat | None = None
    """Standard deviation of the mean log ratios of launches, each with its pairs. Null in floors of
    versions that took every pair for independent."""
    num_pair_launches: PositiveInt | None = None
    """Times that both arms were started for the pairs."""


class NoiseFloor(Record):
    schema_: Literal["llmprof.noise/1"] = Field(default="llmprof.noise/1", alias="schema")
    created: datetime
    environment_fingerprint: str
    workload_key: str
    """Hash over model, work and switches: noise is a property of the work too."""
    metrics: tuple[MetricNoise, ...]
