"""The model on paper: what `llmprof inspect` prints."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from llmprof.schema.cost import StepCost
from llmprof.schema.measurement import Caveat
from llmprof.schema.model import ModelConfig
from llmprof.schema.record import Record


class PrefillFigures(Record):
    """One pass over the prompts of all sequences, with logits for the last row of each."""

    tokens: PositiveInt
    """Of each sequence."""
    flops_dense: NonNegativeFloat
    flops_causal: NonNegativeFloat
    """Exact: T (T + 1) / 2 pairs of query and key, every layer in full."""
    flops: NonNegativeFloat
    """What the attention kernel computes: with flash, what the mask and a sliding window leave."""
    bytes: NonNegativeFloat
    """Weights once + cache written + logits; activations apart."""
    bytes_with_activations: NonNegativeFloat


class DecodeFigures(Record):
    """One step that adds one token to every sequence."""

    context_tokens: NonNegativeInt
    """Of each sequence, cached before the step: the new token attends to this many and to itself."""
    flops: NonNegativeFloat
    """A layer with a sliding window attends to no more than the window."""
    flops_full_attention: NonNegativeFloat
    """As if every layer attended to the whole context."""
    bytes: NonNegativeFloat
    """Weights + cache read and written + logits; activations apart."""
    bytes_with_activations: NonNegativeFloat


class ActiveParameters(Record):
    """What one token uses, by the three conventions of model cards; a dense model uses all."""

    with_embedding_and_head: NonNegativeInt
    without_embedding: NonNegativeInt
    """Without the table that is looked up; a tied one is the head, and stays."""
    without_embedding_and_head: NonNegativeInt


class CacheFigures(Record):
    """The KV cache of all sequences at a context, by convention."""

    context_tokens: NonNegativeInt
    ideal_bytes: NonNegativeFloat
    """Only what attention can still see: a sliding window saturates."""
    block_rounded_bytes: NonNegativeFloat
    """As ideal, in whole blocks."""
    engine_allocated_bytes: NonNegativeFloat
    """Every layer holds every token, in whole blocks: what this engine sets aside."""
    block_tokens: PositiveInt
    state_bytes: NonNegativeInt
    """Of layers with a linear state, which grows with sequences and not with tokens."""
    formula: str
    """The ideal bytes as a product."""


class DeviceFigures(Record):
    """One of several devices that share out every layer (tensor parallel)."""

    devices: PositiveInt
    weight_bytes: NonNegativeInt
    kv_bytes_per_token: NonNegativeFloat
    """KV heads are repeated where devices outnumber them; a latent is on every device."""


class Inspection(Record):
    schema_: Literal["llmprof.inspection/1"] = Field(default="llmprof.inspection/1", alias="schema")
    model: ModelConfig
    origin: str
    """Where the tensors were read from: config, safetensors, gguf."""
    batch: PositiveInt
    parameters_total: NonNegativeInt
    parameters_embedding: NonNegativeInt
    parameters_active: ActiveParameters
    parameters_mtp: NonNegativeInt = 0
    """Layers for multi-token prediction, beside the total."""
    parameters_vision: NonNegativeInt | None = None
    """Image encoder, beside the total; null: there is none, or of a kind that is not known."""
    router_corrections: NonNegativeInt = 0
    """Numbers that balance the experts, stored in fp32 beside the total: buffers, not parameters."""
    weight_bytes: NonNegativeInt
    weight_dtypes: dict[str, NonNegativeInt]
    """Stored format -> bytes."""
    kv_bytes_per_token: NonNegativeFloat
    kv_formula: str
    """The product spelled out with the model's numbers."""
    kv_cache: CacheFigures
    device: DeviceFigures
    logits_bytes: NonNegativeInt
    """In fp32, of the rows that a decode step samples from."""
    peak_activation_bytes: NonNegativeFloat
    """The most that is alive at once in the prefill."""
    prefill: PrefillFigures
    decode: DecodeFigures
    prefill_cost: StepCost
    decode_cost: StepCost
    caveats: tuple[Caveat, ...] = ()
