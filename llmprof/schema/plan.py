"""How much fits into a device's memory, before anything is loaded: what `llmprof plan` prints."""

from enum import StrEnum
from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from llmprof.schema.measurement import Caveat, Source
from llmprof.schema.model import ModelConfig
from llmprof.schema.record import Record
from llmprof.schema.run import Tool
from llmprof.schema.settings import RunConfig


class PlanRates(Record):
    """What one device's links are stated to carry; nothing here was measured."""

    name: str
    read_bytes_per_s: PositiveFloat
    flops_per_s: dict[str, PositiveFloat] = Field(default_factory=dict)
    """By dtype, dense; a dtype that is missing has no compute roof."""
    source: Source
    """`datasheet`, or `assumed` where the user gave the bandwidth."""
    document: str | None = None
    """The vendor's document and its date."""


class MemorySplit(Record):
    """The memory of each device, at the largest batch of the reference context."""

    device_bytes: PositiveInt
    device_source: Source
    """`datasheet`, or `assumed` where the user gave the size."""
    reserve_bytes: NonNegativeInt
    """Kept back for the driver's context, the libraries' workspaces and fragmentation."""
    weight_bytes: NonNegativeInt
    activation_bytes: NonNegativeFloat
    kv_room_bytes: float
    """What is left for the KV cache; negative: the weights do not fit."""


class DecodeBound(StrEnum):
    MEMORY = "memory"
    COMPUTE = "compute"


class PlannedDecode(Record):
    """A decode step at the roof: the least time that the stated rates allow, never a measurement."""

    step_s: PositiveFloat
    bound: DecodeBound
    read_bytes: NonNegativeFloat
    """Of each device: weights + KV + the rest that must move."""
    output_tokens_per_s: PositiveFloat
    """Of all sequences together, in the last step before the context is full."""
    output_tokens_per_s_per_sequence: PositiveFloat
    cost_per_million_tokens: NonNegativeFloat | None
    """Of output, in the currency of the price, with every seat taken; null without a price."""
    source: Source = Source.PREDICTED


class PlanPoint(Record):
    """So many sequences of so many tokens each, and what they take of every device."""

    context_tokens: NonNegativeInt
    """Prompt and output together."""
    sequences: NonNegativeInt
    sequence_bytes: NonNegativeFloat
    """KV cache and states of one sequence at its longest."""
    activation_bytes: NonNegativeFloat
    needed_bytes: NonNegativeFloat
    """Weights + activations + all sequences; the reserve apart."""
    fits: bool
    limit: Literal["memory", "positions", "asked"]
    """What keeps the point from being larger; `asked`: both numbers were given."""
    decode: PlannedDecode | None
    """Null without rates, or where nothing fits."""


class FrontierPoint(Record):
    context_tokens: PositiveInt
    sequences: NonNegativeInt


class PlanEffect(Record):
    """The same plan with one thing changed."""

    label: str
    change: str
    """As `--set` takes it, or in words."""
    weight_bytes: NonNegativeInt | None
    """Of each device; null where it cannot be planned."""
    sequence_bytes: NonNegativeFloat | None
    """At the reference context."""
    sequences: NonNegativeInt | None
    decode: PlannedDecode | None
    frontier: tuple[FrontierPoint, ...] = ()
    reason: str | None = None
    """Why it cannot be planned."""


class MemoryComparison(Record):
    """Planned bytes and the engine's, of one kind."""

    name: str
    planned_bytes: NonNegativeFloat
    allocated_bytes: NonNegativeInt


class VerifiedRun(Record):
    """One try of the engine under the budget."""

    batch: PositiveInt
    prompt_tokens: PositiveInt
    fitted: bool
    peak_live_bytes: NonNegativeInt
    """Tensors alive at once; of a try that failed, what the failing allocation would have made."""


class PlanVerification(Record):
    """What the engine really allocated, beside the plan, and where it really ran out."""

    device: str
    batch: PositiveInt
    prompt_tokens: PositiveInt
    output_tokens: PositiveInt
    compared: tuple[MemoryComparison, ...]
    """weights, KV cache, activations, live tensors in total."""
    process_bytes: NonNegativeInt | None
    """Peak of the process or of torch's allocator: interpreter, libraries, compiled kernels and the
    detours of loading included. Not planned."""
    budget_bytes: PositiveInt
    varied: Literal["batch", "context"]
    predicted_first_failure: PositiveInt
    """Batch, or prompt tokens, of the first run that the plan says does not fit."""
    real_first_failure: PositiveInt | None
    """Null where none was found in the range that was tried."""
    runs: tuple[VerifiedRun, ...]
    reason: str | None = None
    """Why no failure was found."""


class Plan(Record):
    schema_: Literal["llmprof.plan/1"] = Field(default="llmprof.plan/1", alias="schema")
    tool: Tool
    model: ModelConfig
    origin: str
    """Where the tensors were read from: config, safetensors, gguf."""
    settings: RunConfig
    devices: PositiveInt
    """That share out every layer (tensor parallel); every size is that of one of them."""
    weight_format: str
    kv_dtype: str
    compute_dtype: str
    """Of the arithmetic: fp32, bf16 or fp16."""
    memory: MemorySplit
    rates: PlanRates | None
    price_per_hour: NonNegativeFloat | None
    """Of one device."""
    reference_context_tokens: PositiveInt
    """The context of the split, the formulas and the effects."""
    kv_bytes_per_token: NonNegativeFloat
    """Of one device."""
    kv_formula: str
    context_formula: str
    """The cache of one sequence at the reference context, as the plan counts it, and what each of several
    devices holds."""
    capacity_formula: str
    """From the device's memory to the number of sequences."""
    by_context: tuple[PlanPoint, ...]
    by_sequences: tuple[PlanPoint, ...]
    asked: tuple[PlanPoint, ...] = ()
    """Context and batch both given: whether they fit together."""
    effects: tuple[PlanEffect, ...]
    verification: PlanVerification | None = None
    assumptions: tuple[str, ...]
    caveats: tuple[Caveat, ...] = ()
