"""What to run and how to measure it: the whole input of a measurement, one YAML file."""

from enum import StrEnum
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, PositiveFloat, model_validator

from llmprof.schema.record import Setting

# Far beyond every real run, far below what overflows: a slip of the keyboard is found at once.
MAX_SEQUENCES: Final = 1_000_000
MAX_TOKENS: Final = 1_000_000_000
MAX_ROUNDS: Final = 100_000
MAX_WARMUP_ROUNDS: Final = 1_000
MAX_THREADS: Final = 65_536
MAX_SEED: Final = 2**63 - 1
"""Random generators of C++ take no more."""

Sequences: TypeAlias = Annotated[int, Field(ge=1, le=MAX_SEQUENCES)]
Tokens: TypeAlias = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Bytes: TypeAlias = Annotated[int, Field(ge=1, le=2**60)]

DEVICE_PATTERN: Final = r"^(auto|cpu|cuda(:[0-9]{1,4})?)$"


class WeightSource(StrEnum):
    FILE = "file"
    RANDOM = "random"


class WeightDtype(StrEnum):
    AS_STORED = "as_stored"
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


class Quantization(StrEnum):
    NONE = "none"
    INT8 = "int8"
    INT4 = "int4"
    FP8 = "fp8"


class KvLayout(StrEnum):
    NONE = "none"
    CONTIGUOUS = "contiguous"
    PAGED = "paged"


class KvDtype(StrEnum):
    AS_WEIGHTS = "as_weights"
    INT8 = "int8"
    FP8 = "fp8"


class AttentionKind(StrEnum):
    STANDARD = "standard"
    FLASH = "flash"


class AttentionBackend(StrEnum):
    """Whose kernels attend to the cache, where attention is fused."""

    AUTO = "auto"
    NATIVE = "native"
    """Our own: machine code made for the CPU, Triton on a GPU."""
    VARLEN = "varlen"
    """`torch.nn.attention.varlen` with block tables; on a GPU."""
    FLASHINFER = "flashinfer"
    """The package flashinfer-python, where it is installed; on a GPU."""


class BatchingPolicy(StrEnum):
    STATIC = "static"
    CONTINUOUS = "continuous"


class ExecutionMode(StrEnum):
    EAGER = "eager"
    COMPILED = "compiled"
    CUDA_GRAPH = "cuda_graph"


class Fusion(StrEnum):
    """Whether decode steps of few rows run kernels that are a product and what lies around it."""

    AUTO = "auto"
    """Where the device has them: on a GPU with Triton, for activations in bf16 or fp16."""
    ON = "on"
    """The same; a run that could not have them is refused."""
    OFF = "off"
    """A kernel for every op."""


class WorkloadKind(StrEnum):
    FIXED = "fixed"
    TRACE = "trace"


class ContextKind(StrEnum):
    REAL = "real"
    SYNTHETIC = "synthetic"


class Pass(StrEnum):
    """One way of looking at the same work; passes are never mixed in one round."""

    CLEAN = "clean"
    GROUPED = "grouped"
    COUNTING = "counting"
    TRACING = "tracing"
    NVTX = "nvtx"
    """One round with NVTX ranges for ncu and nsys, of which nothing is kept; on a GPU."""


class RoutingKind(StrEnum):
    ROUTER = "router"
    UNIFORM = "uniform"
    ZIPF = "zipf"
    RECORDED = "recorded"


class RoutingSettings(Setting):
    """Which experts the tokens of a mixture of experts pass."""

    kind: RoutingKind = RoutingKind.ROUTER
    """`router` as the model says. For random weights, whose routers say nothing: `uniform`; `zipf`,
    the r-th most popular expert with weight 1 / r^`zipf_exponent`; `recorded` from `file`."""
    zipf_exponent: Annotated[float, Field(gt=0, le=10)] = 1.0
    file: str | None = None
    """JSON lines, one for each token: for each layer with experts the list of those it passes."""


class WeightsSettings(Setting):
    source: WeightSource = WeightSource.FILE
    """`random` makes weights from the configuration alone; such a run is stamped."""
    dtype: WeightDtype = WeightDtype.AS_STORED
    quantization: Quantization = Quantization.NONE
    group_size: Literal[32, 64, 128, "channel"] | None = None
    """Adjacent weights of a row that share one scale; `channel` for one scale per output channel
    (int8 only). Null for groups of 32; fp8 always has one scale per output channel."""
    symmetric: bool = False
    """int4 only: codes around zero, without the minimum that every group has otherwise."""


class KvCacheSettings(Setting):
    layout: KvLayout = KvLayout.CONTIGUOUS
    dtype: KvDtype = KvDtype.AS_WEIGHTS
    block_tokens: Literal[8, 16, 32, 64, 128, 256] = 16
    """256 for `attention.backend=varlen` with torch's FlashAttention 2, which takes no fewer."""
    memory_bytes: Bytes | None = None


class AttentionSettings(Setting):
    kind: AttentionKind = AttentionKind.FLASH
    backend: AttentionBackend = AttentionBackend.AUTO
    """`auto` takes the first that works here, and a caveat says why where that is not the first one.
    The run file names the one that ran."""


class BatchingSettings(Setting):
    policy: BatchingPolicy = BatchingPolicy.STATIC
    max_sequences: Sequences = 64
    max_step_tokens: Tokens = 2048


class ExecutionSettings(Setting):
    mode: ExecutionMode = ExecutionMode.EAGER
    """How decode steps are started: op by op from Python; `compiled` on a CPU records their kernels as a
    list of native calls and replays it, on a GPU torch.compile makes other kernels of them and
    starts these one by one; `cuda_graph` captures them on a GPU."""
    fused: Fusion = Fusion.AUTO
    """On a GPU, of steps of at most 16 rows: a norm is part of the product after it, a gate or an
    addition of the product before it, and norms of heads, rotation and append are one kernel."""
    threads: Annotated[int, Field(ge=1, le=MAX_THREADS)] | None = None
    """CPU threads; null takes every core that this process may use."""


class ParallelSettings(Setting):
    tensor: Annotated[int, Field(ge=1, le=65_536)] = 1


class LengthDistribution(Setting):
    """Lengths in tokens of a trace's prompts or outputs."""

    kind: Literal["fixed", "uniform", "log_normal"] = "fixed"
    mean: Tokens = 256
    sigma: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Standard deviation of the logarithm (`log_normal` only)."""
    low: Tokens = 1
    high: Tokens = 2048

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) is more than high ({self.high})")
        if self.kind == "fixed" and not self.low <= self.mean <= self.high:
            raise ValueError(
                f"mean ({self.mean}) is not from low ({self.low}) to high ({self.high})"
            )
        return self


class TraceLengths(Setting):
    prompt: LengthDistribution = LengthDistribution()
    output: LengthDistribution = LengthDistribution()


class WorkloadSettings(Setting):
    kind: WorkloadKind = WorkloadKind.FIXED
    batch: Sequences = 1
    prompt_tokens: Tokens = 512
    output_tokens: Tokens = 32
    context: ContextKind = ContextKind.REAL
    """`synthetic` fills the cache with `prompt_tokens` random entries and measures decode alone."""
    requests: Sequences = 16
    lengths: TraceLengths = TraceLengths()
    arrival_rate_per_s: Annotated[float, Field(ge=1e-6, le=1e6)] | None = None
    """Poisson arrivals; null submits every request at time zero."""
    file: str | None = None
    """JSON lines with `prompt_tokens` and `output_tokens` per request."""
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0

    @property
    def sizes(self) -> tuple[str, ...]:
        """Short, for names of runs and tables: b4, p512, o32; of a trace its requests, r24."""
        if self.kind is WorkloadKind.TRACE:
            # How many there are in a file is known once it has been read.
            return ("trace",) if self.file else ("trace", f"r{self.requests}")
        return f"b{self.batch}", f"p{self.prompt_tokens}", f"o{self.output_tokens}"


class MeasureSettings(Setting):
    warmup: Annotated[int, Field(ge=0, le=MAX_WARMUP_ROUNDS)] | Literal["auto"] = "auto"
    """Rounds before anything is kept; `auto` goes on until the step times have settled."""
    rounds: Annotated[int, Field(ge=1, le=MAX_ROUNDS)] = 8
    steps_per_round: Tokens | None = None
    """Decode steps timed per round; null takes all of `workload.output_tokens`."""
    passes: tuple[Pass, ...] = (Pass.CLEAN, Pass.GROUPED, Pass.COUNTING)
    confirm: bool = False

    @model_validator(mode="after")
    def _clean_and_each_once(self) -> Self:
        if Pass.CLEAN not in self.passes:
            raise ValueError("measure.passes must contain 'clean': every figure rests on it")
        if len(set(self.passes)) < len(self.passes):
            raise ValueError("measure.passes names a pass twice: each is made once")
        return self


class GateMetric(Setting):
    name: str
    tolerance: Annotated[float, Field(ge=0, le=100)]
    """Relative: 0.05 allows 5 % more; 0 only for what is counted."""


class GateBudget(Setting):
    """An absolute limit of `llmprof gate check`, in the metric's unit."""

    name: str
    max: float | None = None
    min: float | None = None

    @model_validator(mode="after")
    def _has_a_limit(self) -> Self:
        if self.max is None and self.min is None:
            raise ValueError(f"gate.budgets: {self.name} has neither max nor min")
        return self


class GateSettings(Setting):
    tolerance: Annotated[float, Field(gt=0, le=100)] = 0.05
    """Relative, of every timed metric."""
    metrics: tuple[GateMetric, ...] = ()
    """Empty for time to the first token, time per output token, every exact count and the peak."""
    budgets: tuple[GateBudget, ...] = ()
    rounds: Annotated[int, Field(ge=7, le=1000)] = 12
    """Pairs of a look; fewer than 7 show nothing at the level of the gate."""
    launches: Annotated[int, Field(ge=2, le=100)] = 2
    """Times that both arms are started anew for the pairs of a look."""
    seconds_per_turn: Annotated[float, Field(gt=0, le=3600)] = 0.5
    """Least time of an arm's turn: rounds are repeated, and their median counts."""
    on_inconclusive: Literal["warn", "fail"] = "warn"


GridValue: TypeAlias = str | int | float | bool | None
"""One value of an axis, as it would stand in a settings file."""


class SweepSettings(Setting):
    """What `llmprof sweep` varies; every other command leaves it alone."""

    grid: dict[str, tuple[GridValue, ...]] = Field(default_factory=dict)
    """Dotted key -> its values. In a file also as text: `1,4,16`, `512-32768*2`, `0-90+30`."""
    interleave: Annotated[int, Field(ge=1, le=MAX_ROUNDS)] = 1
    """Times that the cells are visited in turn, each with its share of `measure.rounds`."""
    ttft_max_s: PositiveFloat | None = None
    """The largest batch whose time to the first token stays within this is named."""
    tpot_max_s: PositiveFloat | None = None


class RunConfig(Setting):
    """Everything needed to repeat a measurement."""

    model: str = Field(min_length=1)
    """GGUF file, Hugging Face folder, config.json, hub id, preset or installed demo model."""
    device: str = Field(default="auto", pattern=DEVICE_PATTERN)
    weights: WeightsSettings = WeightsSettings()
    kv_cache: KvCacheSettings = KvCacheSettings()
    attention: AttentionSettings = AttentionSettings()
    batching: BatchingSettings = BatchingSettings()
    execution: ExecutionSettings = ExecutionSettings()
    parallel: ParallelSettings = ParallelSettings()
    routing: RoutingSettings = RoutingSettings()
    workload: WorkloadSettings = WorkloadSettings()
    measure: MeasureSettings = MeasureSettings()
    gate: GateSettings = GateSettings()
    sweep: SweepSettings = SweepSettings()
