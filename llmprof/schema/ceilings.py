"""What this device can do at best, measured."""

from datetime import datetime
from enum import StrEnum
from typing import Final, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from llmprof.schema.datasheet import Datasheet
from llmprof.schema.environment import Environment
from llmprof.schema.measurement import Caveat, Source
from llmprof.schema.record import Record

MAX_STEADY_SPREAD: Final = 0.5
"""Interquartile range over median of the calls behind a kernel's roof. Quiet machines stay below 0.3;
beyond this the best call is what the neighbours left, and nothing is predicted from it."""


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
    regime: Literal["burst", "sustained"] = "burst"
    """`sustained` after seconds without a pause, at the clock that power and cooling leave."""
    measured_s: PositiveFloat | None = None
    """How long without a pause: of a sustained ceiling."""
    sm_clock_hz: PositiveFloat | None = None
    """Of a GPU as the products ended; of a sustained ceiling the median of the time that counts. Null on
    a CPU, where NVML does not tell, and in older files."""


class FixedCost(Record):
    """Cost of one kernel (CPU: one op) whatever its size."""

    alpha_s: NonNegativeFloat
    """CPU: a lower bound of what any op takes, the cheapest kind of tiny op, on one thread, called from
    Python. GPU: start, ramp and tail of a kernel that streams memory, among others in a stream; in
    older files a kernel of one element."""
    spread: NonNegativeFloat
    """Interquartile range over median: of the kinds of op on a CPU, of the repeats on a GPU."""
    method: str
    parallel_s: NonNegativeFloat | None = None
    """What a parallel region adds to an op: handing nothing to the threads of torch's pool, which still
    spin from the region before, and waiting for them. No part of `alpha_s`. None on a GPU, with one
    thread, or where torch's threads cannot be reached."""
    graph_s: NonNegativeFloat | None = None
    """The same kernels inside a CUDA graph, whose steps start them faster than a stream does. None on a
    CPU, in older files, and where torch captured none."""
    fit_error: NonNegativeFloat | None = None
    """Of a GPU: largest distance of a read's time from the line that alpha is the intercept of."""
    small_s: NonNegativeFloat | None = None
    """A kernel of one element among others in a stream: what one whose data lies in caches takes at
    least. None on a CPU, where `alpha_s` is that, and in older files."""
    small_graph_s: NonNegativeFloat | None = None
    """The same as a node of a CUDA graph."""
    launch_s: NonNegativeFloat | None = None
    """What the host takes to launch one kernel from Python. No part of the others; a step pays it where
    nothing hides it."""


class SkinnyCeiling(Record):
    """The engine's matmul kernel at so many rows, on weights of one format streamed past the caches.

    What a decode step's projections can read; live readings (`SkinnyReading`) tell the same for the
    format and the rows of a run.
    """

    format: str
    """As `costs.weight_formats` spells it: bf16, int8_g32, int4_g32_asym, ..."""
    rows: PositiveInt
    out_features: PositiveInt
    in_features: PositiveInt
    level: str
    """That the weights came from, as `BandwidthCeiling.level`."""
    bytes_per_s: PositiveFloat
    """Of weights as stored, scales and minimums included."""
    median_bytes_per_s: PositiveFloat
    spread: NonNegativeFloat
    kernel: str
    source: Source = Source.MEASURED


class AttentionCeiling(Record):
    """The engine's attention of one new token per sequence on a cache streamed past the caches."""

    layout: Literal["contiguous", "paged"]
    kv_dtype: str
    """As stored: fp32, bf16, fp16, int8, fp8."""
    kind: Literal["flash", "standard"]
    context_tokens: PositiveInt
    """Tokens attended to, the new one included."""
    level: str
    """That keys and values came from, as `BandwidthCeiling.level`."""
    sequences: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    block_tokens: PositiveInt | None
    """Of a paged cache."""
    bytes_per_s: PositiveFloat
    """Of keys and values as stored, scales included, each read once: a gathered copy or scores in
    memory make it lower, and count nothing."""
    median_bytes_per_s: PositiveFloat
    spread: NonNegativeFloat
    kernel: str
    source: Source = Source.MEASURED


class HostCost(Record):
    """Time of a decode step of a model so small that what it computes and reads costs nothing.

    Interpreter, dispatch, launches and synchronisation: what no kernel can be made to hide.
    """

    mode: str
    """execution.mode."""
    seconds_per_step: PositiveFloat
    median_s: PositiveFloat
    spread: NonNegativeFloat
    layers: PositiveInt
    seconds_per_layer: NonNegativeFloat
    """What one layer more adds, from two models that differ in nothing else."""
    method: str
    source: Source = Source.MEASURED


class CollectiveCeiling(Record):
    """Time of a collective of `n` bytes per rank is `alpha_s` + n / `bytes_per_s`."""

    op: Literal["all_reduce", "all_gather"]
    backend: str
    world_size: PositiveInt
    alpha_s: NonNegativeFloat
    bytes_per_s: PositiveFloat
    """Of one rank's buffer (all_gather: of what a rank contributes), not of what crosses the wire."""
    spread: NonNegativeFloat
    """Largest distance of a measured size from the line, over its time."""
    sizes_bytes: tuple[PositiveInt, ...]
    source: Source = Source.MEASURED
    dtype: str = "bf16"
    """Of the numbers that were exchanged."""


class GpmCalibration(Record):
    """DRAM activity that the device's counter shows while the read kernel runs: its full scale."""

    dram_activity: PositiveFloat
    """Of the theoretical bandwidth."""
    measured_s: PositiveFloat
    kernel: str
    source: Source = Source.GPM


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
    alpha_s: PositiveFloat | None = None
    """Fixed cost of one op at this moment, on a CPU (see `FixedCost`); null on a GPU and in older files."""
    sm_clock_hz: PositiveFloat | None = None
    """Of a GPU, as the last matmul ended: `matmul_flops_per_s` goes with it. Null on a CPU, where NVML
    does not tell, and in older files."""
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
    sustained: tuple[ComputeCeiling, ...] = ()
    """These and the next five are measured when somebody asks for them; a run does not."""
    skinny: tuple[SkinnyCeiling, ...] = ()
    attention: tuple[AttentionCeiling, ...] = ()
    host: tuple[HostCost, ...] = ()
    collectives: tuple[CollectiveCeiling, ...] = ()
    gpm: tuple[GpmCalibration, ...] = ()
    parts_measured_at: dict[str, datetime] = Field(default_factory=dict)
    """When each of them was measured."""
    contended_parts: tuple[str, ...] = ()
    """Those of them that other processes disturbed: they may be too low, and age fast."""
    datasheet: Datasheet | None = None
    """What the vendor states; null for a device that the table does not know."""

    @property
    def steady_skinny(self) -> tuple[SkinnyCeiling, ...]:
        return tuple(one for one in self.skinny if one.spread <= MAX_STEADY_SPREAD)

    @property
    def steady_attention(self) -> tuple[AttentionCeiling, ...]:
        return tuple(one for one in self.attention if one.spread <= MAX_STEADY_SPREAD)

    def skinny_read(self, format: str, rows: int) -> float | None:
        """Bytes/s of weights of this format at so many rows; None where nothing measured tells.

        Between two measured numbers of rows the time per byte is interpolated linearly; outside them
        there is no figure.
        """
        known = {one.rows: one.bytes_per_s for one in self.steady_skinny if one.format == format}
        return _between(known, rows)

    def attention_read(
        self, layout: str, kv_dtype: str, kind: str, context_tokens: int
    ) -> float | None:
        """Bytes/s of a stored cache at so many tokens of context; None where nothing measured tells.

        Between two measured contexts the time per byte is interpolated linearly; beyond the longest
        its rate holds, since a stream does not care how long it is; below the shortest there is none.
        """
        known = {
            one.context_tokens: one.bytes_per_s
            for one in self.steady_attention
            if (one.layout, one.kv_dtype, one.kind) == (layout, kv_dtype, kind)
        }
        return _between(known, min(context_tokens, max(known, default=context_tokens)))


def _between(rates: dict[int, float], size: int) -> float | None:
    """Rate at `size` from the measured ones beside it, linear in the time per unit."""
    below = max((one for one in rates if one <= size), default=None)
    above = min((one for one in rates if one >= size), default=None)
    if below is None or above is None:
        return None
    share = (size - below) / (above - below) if above > below else 0.0
    return 1 / ((1 - share) / rates[below] + share / rates[above])
