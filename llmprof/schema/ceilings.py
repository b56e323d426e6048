"""What this device can do at best, measured."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from llmprof.schema.environment import Environment
from llmprof.schema.measurement import Caveat, Source
from llmprof.schema.record import Record


class MemoryOp(StrEnum):
    READ = "read"
    COPY = "copy"
    TRIAD = "triad"
    WRITE = "write"


class BandwidthCeiling(Record):
    """Bytes per second that user code sees: copy counts 2 N, triad 3 N, no write-allocate."""

    op: MemoryOp
    level: str
    """`L2`, `LLC`, `DRAM`, `HBM`: the level that a buffer of this size lives in."""
    buffer_bytes: PositiveInt
    bytes_per_s: PositiveFloat
    """Best of the repeats on a CPU (noise only slows), median of the best kernel on a GPU."""
    median_bytes_per_s: PositiveFloat
    spread: NonNegativeFloat
    """Interquartile range over median of the repeats."""
    kernel: str
    source: Source = Source.MEASURED


class ComputeCeiling(Record):
    dtype: str
    m: PositiveInt
    n: PositiveInt
    k: PositiveInt
    flops_per_s: PositiveFloat
    median_flops_per_s: PositiveFloat
    spread: NonNegativeFloat
    kernel: str
    source: Source = Source.MEASURED


class FixedCost(Record):
    """Cost of one kernel (CPU: one op) whatever its size: the intercept of t = alpha + size/BW."""

    alpha_s: NonNegativeFloat
    spread: NonNegativeFloat
    method: str


class SkinnyReading(Record):
    """The engine's own matmul kernel at the rows of the run, weights streamed past the caches."""

    rows: PositiveInt
    dtype: str
    kernel: str
    bytes_per_s: PositiveFloat


class CeilingReading(Record):
    """One live reading, taken in about 60 ms between two rounds."""

    time_s: NonNegativeFloat
    """Since the start of the run."""
    duration_s: PositiveFloat
    read_bytes_per_s: PositiveFloat
    read_buffer_bytes: PositiveInt
    read_level: str
    read_kernel: str
    matmul_dtype: str
    matmul_flops_per_s: PositiveFloat
    matmul_shape: tuple[PositiveInt, PositiveInt, PositiveInt]
    skinny: SkinnyReading | None


class Ceilings(Record):
    """Everything that is measured once per device and software, and cached."""

    schema_: Literal["llmprof.ceilings/1"] = Field(default="llmprof.ceilings/1", alias="schema")
    measured_at: datetime
    environment: Environment
    bandwidth: tuple[BandwidthCeiling, ...]
    compute: tuple[ComputeCeiling, ...]
    fixed_cost: FixedCost
    caveats: tuple[Caveat, ...] = ()
