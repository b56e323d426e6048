"""What was recorded: raw, unaggregated, in the order it happened. The file on disk."""

from datetime import datetime
from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from llmprof.schema.ceilings import CeilingReading, Ceilings
from llmprof.schema.confirmation import Confirmation
from llmprof.schema.cost import ExpertsRead, KvAccess, OpGroup, Phase, StepCost, StepShape
from llmprof.schema.environment import Environment
from llmprof.schema.intervention import Intervention
from llmprof.schema.measurement import Caveat
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.record import Record
from llmprof.schema.settings import RunConfig
from llmprof.schema.trace import Trace


class Tool(Record):
    version: str
    argv: tuple[str, ...]
    """The command that reproduces the run, its paths reduced to their last part."""


class GroupTime(Record):
    """Time inside one op group during one step (grouped pass only)."""

    group: OpGroup
    duration_s: NonNegativeFloat
    calls: PositiveInt
    """Times the engine entered the group: the tracer's own cost is subtracted per call."""


class KvUse(Record):
    """KV cache during a step, the tokens that it adds included."""

    reserved_bytes: NonNegativeInt
    """Set aside for sequences, whether filled or not: whole blocks of a paged cache, whole maximal
    lengths of a contiguous one."""
    used_bytes: NonNegativeInt
    """Holds a token of a sequence. The rest of what is reserved is wasted."""
    blocks_held: NonNegativeInt
    blocks_total: NonNegativeInt
    """Of the store; a contiguous cache has one block per sequence."""

    @property
    def wasted_bytes(self) -> int:
        return self.reserved_bytes - self.used_bytes


class BatchUse(Record):
    """How full the batch of a step was."""

    running: NonNegativeInt
    """Sequences that hold a place in the batch."""
    waiting: NonNegativeInt
    """Requests that have arrived and hold none."""
    slots_idle: NonNegativeInt
    """Places without a sequence that still has tokens to give."""
    padding_tokens: NonNegativeInt
    """New tokens of the step's shape that were computed for nothing: prompts padded to the longest,
    and sequences that were done before the last of their batch."""


class StepSample(Record):
    """One engine step: one scheduled batch, one forward pass, one sampled row per sequence."""

    shape: StepShape
    start_s: NonNegativeFloat
    """Since the start of the run."""
    duration_s: NonNegativeFloat
    """Host clock from the scheduler's call to the end of the step; the device is synchronised once
    per round, so on CUDA `device_s` is the one to judge by."""
    device_s: NonNegativeFloat | None = None
    """Device clock between the events at the step's boundaries; null where there is no such clock."""
    groups: tuple[GroupTime, ...] = ()
    kv: KvUse | None = None
    """Null without a cache, or for a workload that has none."""
    batch: BatchUse | None = None
    """Null for work of a fixed shape, where every place is always filled."""


class RequestSample(Record):
    """What happened to one request of a round. Times follow from the round's steps."""

    index: NonNegativeInt
    """In the trace."""
    arrival_s: NonNegativeFloat
    """In the trace, after the start of the round."""
    prompt_tokens: PositiveInt
    output_tokens: PositiveInt
    """Asked for; `token_steps` are those that came."""
    queue_s: NonNegativeFloat | None
    """Host clock from the arrival to the start of `first_step`; null if it never ran."""
    first_step: NonNegativeInt | None
    """Index of the round's step that first worked on it."""
    token_steps: tuple[NonNegativeInt, ...]
    """Per output token, the index of the step at whose end it was there."""
    preemptions: NonNegativeInt = 0
    """Times it lost its blocks and was computed again."""
    outcome: Literal["finished", "rejected", "unfinished"]
    reason: str | None = None


class ServingEvent(Record):
    """Something in a round that a reader should know."""

    step: NonNegativeInt
    """Index of the step before which it happened."""
    kind: Literal["preempted", "rejected"]
    request: NonNegativeInt
    message: str


class Contention(Record):
    """Whether the machine was ours during a round; null where the system does not tell."""

    run_queue_fraction: float | None
    """Own run-queue delay over threads x wall time."""
    cpu_per_wall: float | None
    """CPU time over threads x wall time."""
    steal_fraction: float | None
    pressure_fraction: float | None
    """Share of the time in which some task of the system waited for a CPU: a hint only."""
    canary_hz: float | None
    """Dependent additions per CPU-second: falls when the clock does."""
    worst_thread_fraction: float | None = None
    """Largest run-queue delay of a thread that worked, over wall time: a parallel op ends with its
    slowest thread. Threads that hardly ever wanted a CPU are left out."""
    quota_used_up_fraction: float | None = None
    """Share of its periods in which a control group of this process used up its CPU quota and all of
    the group stood still; null without a quota."""


class ClockSample(Record):
    """The clock of a GPU's multiprocessors at one moment of a round."""

    time_s: NonNegativeFloat
    """Since the start of the run."""
    sm_clock_hz: NonNegativeFloat


class DeviceTelemetry(Record):
    """Device sensors during a round; each field null with its reason where it could not be read."""

    sm_clock_hz: NonNegativeFloat | None = None
    """Right after the round; `sm_clock_samples` are those during it."""
    sm_clock_samples: tuple[ClockSample, ...] = ()
    """Every 50 ms, or less often in rounds of more than half a minute."""
    memory_clock_hz: NonNegativeFloat | None = None
    power_w: NonNegativeFloat | None = None
    temperature_celsius: float | None = None
    memory_used_bytes: NonNegativeInt | None = None
    """By every process, without what the driver reserves. `memory_used_bytes` over
    `memory_total_bytes` is how full the memory is."""
    memory_total_bytes: NonNegativeInt | None = None
    gpu_busy_fraction: NonNegativeFloat | None = None
    """NVML's "GPU utilisation": share of its last sampling period (1/6 to 1 s) in which some kernel
    ran, however small. No fraction of a roof."""
    memory_busy_fraction: NonNegativeFloat | None = None
    """NVML's "memory utilisation": share of the same time in which memory was read or written. It
    tells neither how full memory is nor what bandwidth was reached."""
    event_reasons: tuple[str, ...] = ()
    foreign_processes: NonNegativeInt | None = None
    energy_j: NonNegativeFloat | None = None
    """Of the whole device during the round, by its own counter."""
    held_back_s: dict[str, NonNegativeFloat] = Field(default_factory=dict)
    """Time of the round in which the device held its clocks back, by cause (power, thermal), by
    its own counters."""
    interval_s: NonNegativeFloat | None = None
    """That energy and time held back are about."""
    sm_activity: NonNegativeFloat | None = None
    """Share of multiprocessors with a warp, mean over the round; GPM, of all processes."""
    sm_occupancy: NonNegativeFloat | None = None
    tensor_activity: NonNegativeFloat | None = None
    dram_activity: NonNegativeFloat | None = None
    """Of the theoretical bandwidth: compare it with what a read kernel reaches, which is below 1."""
    missing: dict[str, str] = Field(default_factory=dict)


class Round(Record):
    """One repetition of the workload between two live readings of the ceilings."""

    index: NonNegativeInt
    before: CeilingReading | None
    after: CeilingReading | None
    """Null in an unjudged round (grouped, tracing) or where the run was interrupted."""
    steps: tuple[StepSample, ...]
    contention: Contention
    telemetry: DeviceTelemetry | None = None
    held_back: bool = False
    """A device was held back before each step until the host had enqueued all of it: its times are
    those of kernels back to back, without any wait for the host."""
    requests: tuple[RequestSample, ...] = ()
    """In the order of the trace; empty for work of a fixed shape."""
    events: tuple[ServingEvent, ...] = ()
    compiled_steps: NonNegativeInt = 0
    """By torch.compile meanwhile: steps of this round hold that time."""


class EnergyWindow(Record):
    """Energy of several rounds back to back, where each alone is too short for the counter."""

    rounds: PositiveInt
    energy_j: NonNegativeFloat
    """Of the whole device, what it draws between two rounds included."""
    interval_s: PositiveFloat
    power_samples: PositiveInt | None = None
    """Of a device without such a counter: so many readings of its power, integrated. An estimate."""


class CountedOp(Record):
    """One operator as torch dispatched it in a step, summed over its calls."""

    op: str
    group: OpGroup
    calls: PositiveInt
    flops: NonNegativeInt | None
    """By the registered formula; null for an op that does no matrix work."""
    missing_formula: bool = False
    """It looks like matrix work and has no formula: no FLOP/s may be claimed."""
    exchanged_bytes: NonNegativeInt | None = None
    """Of a collective: bytes of the buffers that this rank gave; null for every other op."""


class CountedStep(Record):
    """The counting pass over one step."""

    shape: StepShape
    ops: tuple[CountedOp, ...]


class Warmup(Record):
    rounds: NonNegativeInt
    settled: bool | None
    """The last of the warm-up rounds was hardly faster than the best one before it, in every phase; null
    where it was not tested, since the settings gave the number of rounds."""
    step_s: tuple[NonNegativeFloat, ...] = ()
    """Decode (or only) step medians of the warm-up rounds."""


class OwnCost(Record):
    """What the instruments themselves cost inside a step. A probe call is one pair of group hooks."""

    probe_calls_per_step: NonNegativeFloat
    seconds_per_probe_call: NonNegativeFloat
    """What a pair adds to a step of the grouped pass, over the empty hooks of the clean pass."""
    seconds_in_group_per_probe_call: NonNegativeFloat = 0.0
    """The share of it that falls inside the group's own time: subtract this from a group, and the
    whole from a step."""
    seconds_per_empty_call: NonNegativeFloat = 0.0
    """What a pair of empty hooks costs: every step of the clean pass holds it."""
    seconds_per_step: NonNegativeFloat = 0.0
    """What the hooks at the boundaries of a step cost it in every pass."""
    sampler_cpu_s: NonNegativeFloat = 0.0
    """CPU time of threads that read sensors during the clean rounds, all together."""


class EngineDescription(Record):
    """What really ran."""

    name: str
    kernels: dict[str, str]
    """Op group or role -> kernel that ran: {"projections": "torch.nn.functional.linear", ...}."""
    compute_dtype: str
    kv_dtype: str
    kv_bytes_reserved: NonNegativeInt
    kv_bytes_used: NonNegativeInt
    """At the end of a round."""
    weight_bytes: NonNegativeInt
    weights_checksum: str | None = None
    """Over every bit of the weights, as they lay in memory after the last round. Null in older files."""
    threads: PositiveInt
    random_weights: bool
    kv_access: KvAccess = KvAccess()
    kv_bytes_per_token: NonNegativeFloat | None = None
    """Of one sequence, all layers, scales included; null in files of older versions."""
    packed_rows: NonNegativeInt | None = None
    """Products of at most so many rows read packed weights as they are; those of more rows unpack
    them to floats first. Null for float weights."""
    fp8_arithmetic: bool = False
    """Products of more rows with fp8 weights are done in fp8 arithmetic, their rows rounded to it."""
    fused_rows: NonNegativeInt = 0
    """Products of at most so many rows are one kernel with the norm before and the gate or addition after
    them, which belong to their group; rotation is in `kv_append`. 0: each op is a kernel of its own."""
    experts_read: tuple[ExpertsRead, ...] = ()
    """Of a mixture of experts, as its tokens were really routed."""
    row_buckets: tuple[PositiveInt, ...] = ()
    """Rows that recorded decode steps are padded to; empty where they run as they are."""
    compiled_steps: NonNegativeInt = 0
    """Decode steps that torch.compile compiled, one for each shape; 0 where it was not asked."""
    compile_s: NonNegativeFloat = 0.0
    """What that took, warm-up and all: no measured step holds it, or a caveat says so."""
    attention_backend: str | None = None
    """Whose kernels attended to the cache, with the version that is not torch's own: `native`,
    `varlen (FlashAttention 2)`, `flashinfer 0.6.14`, or `torch` for scaled_dot_product_attention on
    views and gathered copies. Null for standard attention, without a cache, and in older files."""
    attention_fallback: str | None = None
    """Why it is not the one that `auto` tries first; null where it is, or where it was asked for."""
    regime: Literal["run_ahead", "synchronous"] | None = None
    """`run_ahead`: the host enqueues steps on a device without waiting, and synchronises once per
    round; `synchronous`: it has each step's tokens before the next one starts. Null in older files."""


class RunRecord(Record):
    """The raw outcome of a measurement. Every number in a report is recomputed from this."""

    schema_: Literal["llmprof.run/1"] = Field(default="llmprof.run/1", alias="schema")
    id: str
    created: datetime
    status: Literal["complete", "partial"]
    status_reason: str | None = None
    failed: bool = False
    """A partial run was ended by an error, not by a person."""
    tool: Tool
    settings: RunConfig
    environment: Environment
    model: ModelConfig | None
    """Null for a workload that is not a language model."""
    weights: WeightManifest | None
    stated_costs: tuple[StepCost, ...] = ()
    """Costs by phase of a workload without a model; a model's costs are recomputed from its shape."""
    engine: EngineDescription
    ceilings: Ceilings
    warmup: Warmup
    rounds: tuple[Round, ...]
    """The clean pass."""
    grouped: tuple[Round, ...]
    counted: tuple[CountedStep, ...]
    traced: tuple[Round, ...] = ()
    """The rounds of the tracing pass."""
    trace: Trace | None = None
    """Ops of the traced rounds; null without a tracing pass."""
    energy: EnergyWindow | None = None
    """Null where rounds have `telemetry.energy_j` of their own, and without such a counter."""
    own_cost: OwnCost
    output_sha256: str | None
    """Hash over the output ids of the first round; every round must give the same."""
    phases: tuple[Phase, ...]
    peak_memory_bytes: NonNegativeInt | None = None
    """The most that was held at once: what torch allocated on a GPU, else the process's resident
    set, loading included; null where the system does not tell."""
    caveats: tuple[Caveat, ...] = ()
    interventions: tuple[Intervention, ...] = ()
    """Made where `measure.confirm` asks for them."""
    confirmations: tuple[Confirmation, ...] = ()
    """Switches that were predicted from this run and measured after it, as they were written down
    then: a prediction that is computed again later is none."""
