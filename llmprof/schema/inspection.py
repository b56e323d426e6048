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
    """Exact: T (T + 1) / 2 pairs of query and key."""
    bytes: NonNegativeFloat
    """Weights once + cache written + logits; activations apart."""
    bytes_with_activations: NonNegativeFloat


class DecodeFigures(Record):
    """One step that adds one token to every sequence."""

    context_tokens: NonNegativeInt
    """Of each sequence, cached before the step: the new token attends to this many and to itself."""
    flops: NonNegativeFloat
    bytes: NonNegativeFloat
    """Weights + cache read and written + logits; activations apart."""
    bytes_with_activations: NonNegativeFloat


class Inspection(Record):
    schema_: Literal["llmprof.inspection/1"] = Field(default="llmprof.inspection/1", alias="schema")
    model: ModelConfig
    origin: str
    """Where the tensors were read from: config, safetensors, gguf."""
    batch: PositiveInt
    parameters_total: NonNegativeInt
    parameters_embedding: NonNegativeInt
    weight_bytes: NonNegativeInt
    weight_dtypes: dict[str, NonNegativeInt]
    """Stored format -> bytes."""
    kv_bytes_per_token: NonNegativeFloat
    kv_formula: str
    """The product spelled out with the model's numbers."""
    prefill: PrefillFigures
    decode: DecodeFigures
    prefill_cost: StepCost
    decode_cost: StepCost
    caveats: tuple[Caveat, ...] = ()
