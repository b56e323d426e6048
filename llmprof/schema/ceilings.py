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
    """The level that a buffer of this size lives in: `L2`, `LLC`, `DRAM`, `HBM`; `LLC or DRAM` (on a
    GPU `L2 or HBM`) where size and rates do not tell which."""
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
    """Cost of one kernel (CPU: one op) whatever its size."""

    alpha_s: NonNegativeFloat
    """A lower bound of what any op takes. CPU: the cheapest kind of tiny op, on one thread, called from
    Python. GPU: a kernel of one element among others in a stream."""
    spread: NonNegativeFloat
    """Interquartile range over median: of the kinds of op on a CPU, of the repeats on a GPU."""
    method: str
    parallel_s: NonNegativeFloat | None = None
    """What a parallel region adds to an op: handing nothing to the threads of torch's pool, which still
    spin from the region before, and waiting for them. No part of `alpha_s`. None on a GPU, with one
    thread, or where torch's threads cannot be reached."""


class SkinnyReading(Record):
    """The engine's own matmul kernel at the rows of the run, weights streamed past the caches."""

    rows: PositiveInt
    dtype: str
    kernel: str
    bytes_per_s: PositiveFloat
    """Of the step's shapes together, each at the best of its calls."""
    calls_bytes_per_s: tuple[PositiveFloat, ...] = ()
    """The same of each pass over the shapes alone, in their order, to 4 digits."""


class CeilingReading(Record):
    """One live reading, taken in 0.1 to 0.3 s between two rounds.

    Rates are the best of their calls on a CPU and the median on a GPU. The calls themselves are kept,
    in their order and to 4 digits, so that what a best of several gains can be computed.
    """

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
    """Of the shapes that took turns, the one that won this reading: m, n, k."""
    skinny: SkinnyReading | None
    read_calls_bytes_per_s: tuple[PositiveFloat, ...] = ()
    matmul_calls_flops_per_s: tuple[PositiveFloat, ...] = ()
    """Of every shape that took a turn, the winner's among them."""


class Ceilings(Record):
    """Everything that is measured once per device and software, and cached."""

    schema_: Literal["llmprof.ceilings/1"] = Field(default="llmprof.ceilings/1", alias="schema")
    measured_at: datetime
    environment: Environment
    bandwidth: tuple[BandwidthCeiling, ...]
    compute: tuple[ComputeCeiling, ...]
    fixed_cost: FixedCost
    caveats: tuple[Caveat, ...] = ()
