"""What to run and how to measure it: the whole input of a measurement, one YAML file."""

from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from llmprof.schema.record import Setting


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


class BatchingPolicy(StrEnum):
    STATIC = "static"
    CONTINUOUS = "continuous"


class ExecutionMode(StrEnum):
    EAGER = "eager"
    COMPILED = "compiled"
    CUDA_GRAPH = "cuda_graph"


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


class WeightsSettings(Setting):
    source: WeightSource = WeightSource.FILE
    """`random` makes weights from the configuration alone; such a run is stamped."""
    dtype: WeightDtype = WeightDtype.AS_STORED
    quantization: Quantization = Quantization.NONE
    group_size: Literal[32, 64, 128] | None = None
    """Weights that share one scale; null for one scale per output channel."""


class KvCacheSettings(Setting):
    layout: KvLayout = KvLayout.CONTIGUOUS
    dtype: KvDtype = KvDtype.AS_WEIGHTS
    block_tokens: Literal[8, 16, 32, 64, 128] = 16
    memory_bytes: PositiveInt | None = None


class AttentionSettings(Setting):
    kind: AttentionKind = AttentionKind.FLASH


class BatchingSettings(Setting):
    policy: BatchingPolicy = BatchingPolicy.STATIC
    max_sequences: PositiveInt = 64
    max_step_tokens: PositiveInt = 2048


class ExecutionSettings(Setting):
    mode: ExecutionMode = ExecutionMode.EAGER
    threads: PositiveInt | None = None
    """CPU threads; null takes every core that this process may use."""


class ParallelSettings(Setting):
    tensor: PositiveInt = 1


class LengthDistribution(Setting):
    """Lengths in tokens of a trace's prompts or outputs."""

    kind: Literal["fixed", "uniform", "log_normal"] = "fixed"
    mean: PositiveInt = 256
    sigma: PositiveFloat = 1.0
    """Standard deviation of the logarithm (`log_normal` only)."""
    low: PositiveInt = 1
    high: PositiveInt = 2048


class TraceLengths(Setting):
    prompt: LengthDistribution = LengthDistribution()
    output: LengthDistribution = LengthDistribution()


class WorkloadSettings(Setting):
    kind: WorkloadKind = WorkloadKind.FIXED
    batch: PositiveInt = 1
    prompt_tokens: PositiveInt = 512
    output_tokens: PositiveInt = 32
    context: ContextKind = ContextKind.REAL
    """`synthetic` fills the cache with `prompt_tokens` random entries and measures decode alone."""
    requests: PositiveInt = 16
    lengths: TraceLengths = TraceLengths()
    arrival_rate_per_s: PositiveFloat | None = None
    """Poisson arrivals; null submits every request at time zero."""
    file: str | None = None
    """JSON lines with `prompt_tokens` and `output_tokens` per request."""
    seed: NonNegativeInt = 0


class MeasureSettings(Setting):
    warmup: NonNegativeInt | Literal["auto"] = "auto"
    """Rounds before anything is kept; `auto` goes on until the step times have settled."""
    rounds: PositiveInt = 8
    steps_per_round: PositiveInt | None = None
    """Decode steps timed per round; null takes all of `workload.output_tokens`."""
    passes: tuple[Pass, ...] = (Pass.CLEAN, Pass.GROUPED, Pass.COUNTING)
    confirm: bool = False

    @model_validator(mode="after")
    def _clean_pass_is_needed(self) -> Self:
        if Pass.CLEAN not in self.passes:
            raise ValueError("measure.passes must contain 'clean': every figure rests on it")
        return self


class GateMetric(Setting):
    name: str
    tolerance: PositiveFloat


class GateBudget(Setting):
    name: str
    max: float


class GateSettings(Setting):
    tolerance: PositiveFloat = 0.05
    metrics: tuple[GateMetric, ...] = ()
    budgets: tuple[GateBudget, ...] = ()
    on_inconclusive: Literal["warn", "fail"] = "warn"


class RunConfig(Setting):
    """Everything needed to repeat a measurement."""

    model: str = Field(min_length=1)
    """GGUF file, Hugging Face folder, config.json, hub id, preset or installed demo model."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    weights: WeightsSettings = WeightsSettings()
    kv_cache: KvCacheSettings = KvCacheSettings()
    attention: AttentionSettings = AttentionSettings()
    batching: BatchingSettings = BatchingSettings()
    execution: ExecutionSettings = ExecutionSettings()
    parallel: ParallelSettings = ParallelSettings()
    workload: WorkloadSettings = WorkloadSettings()
    measure: MeasureSettings = MeasureSettings()
    gate: GateSettings = GateSettings()
