"""A decoder model on paper: its shape, and the tensors that store it."""

from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from llmprof.schema.record import Record


class RopeScaling(Record):
    """How rotary frequencies are stretched beyond the trained context (Hugging Face names)."""

    kind: Literal["linear", "llama3", "yarn"]
    factor: PositiveFloat
    original_max_position_embeddings: PositiveInt | None = None
    low_freq_factor: PositiveFloat | None = None
    high_freq_factor: PositiveFloat | None = None
    beta_fast: PositiveFloat = 32.0
    beta_slow: PositiveFloat = 1.0
    attention_factor: PositiveFloat | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None


class ModelConfig(Record):
    """Shape of a llama-family decoder, in the names of a Hugging Face config.json."""

    name: str
    model_type: str
    """Family as in config.json: llama, mistral, qwen2, qwen3, ..."""
    num_hidden_layers: PositiveInt
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    head_dim: PositiveInt
    vocab_size: PositiveInt
    max_position_embeddings: PositiveInt
    rope_theta: PositiveFloat = 10_000.0
    rope_scaling: RopeScaling | None = None
    rms_norm_eps: PositiveFloat = 1e-5
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    """Biases on the q, k and v projections (Qwen2)."""
    output_bias: bool = False
    """Bias on the output projection of attention."""
    mlp_bias: bool = False
    qk_norm: bool = False
    """RMS norm over head_dim on queries and keys before the rotation (Qwen3)."""
    bos_token_id: NonNegativeInt | None = None
    eos_token_ids: tuple[NonNegativeInt, ...] = ()
    torch_dtype: Literal["fp32", "bf16", "fp16"] | None = None
    """Dtype that the checkpoint declares."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads ({self.num_attention_heads}) must be a multiple of "
                f"num_key_value_heads ({self.num_key_value_heads})"
            )
        return self

    @property
    def query_size(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_key_value_heads * self.head_dim


class TensorSpec(Record):
    """One weight tensor: what it is called, its logical shape and how it is stored."""

    name: str
    """Hugging Face name (`model.layers.0.self_attn.q_proj.weight`), whatever the file calls it."""
    shape: tuple[NonNegativeInt, ...]
    """Logical shape, as the model multiplies it: [out_features, in_features] for a projection."""
    stored_dtype: str
    """fp32, bf16, fp16, or the name of a packed format (q4_1, q8_0, int8_g32, ...)."""
    stored_bytes: NonNegativeInt
    """Bytes in memory or in the file, scales and zeros included."""

    @property
    def parameters(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


class WeightManifest(Record):
    """Every tensor of a model; made from file headers and from the engine alike."""

    origin: Literal["config", "safetensors", "gguf", "engine"]
    """`config`: derived from the shape alone, no file was read."""
    tensors: tuple[TensorSpec, ...] = Field(min_length=1)

    @property
    def parameters(self) -> int:
        return sum(tensor.parameters for tensor in self.tensors)

    @property
    def stored_bytes(self) -> int:
        return sum(tensor.stored_bytes for tensor in self.tensors)
