"""A decoder model on paper: its shape, and the tensors that store it."""

from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from llmprof.schema.checkpoint_format import CheckpointQuantization
from llmprof.schema.layers import DenseMlp, LayerShape, SoftmaxAttention
from llmprof.schema.record import Record


class RopeScaling(Record):
    """How rotary frequencies are stretched beyond the trained context (Hugging Face names)."""

    kind: Literal["linear", "llama3", "yarn", "longrope", "dynamic"]
    factor: PositiveFloat
    """Of longrope, whose factors differ by frequency: the context over the original one."""
    original_max_position_embeddings: PositiveInt | None = None
    low_freq_factor: PositiveFloat | None = None
    high_freq_factor: PositiveFloat | None = None
    beta_fast: PositiveFloat = 32.0
    beta_slow: PositiveFloat = 1.0
    attention_factor: PositiveFloat | None = None
    short_factors: tuple[PositiveFloat, ...] = ()
    """longrope: what divides each frequency up to the original context."""
    long_factors: tuple[PositiveFloat, ...] = ()
    """longrope: what divides each frequency where a sequence is longer than the original context."""
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    """YaRN: whether the bounds of its ramp are rounded to whole frequencies."""


class VisionTower(Record):
    """An image encoder beside the decoder, counted apart; None of its work is in a text step."""

    model_type: str
    parameters: PositiveInt | None
    """With its projection into the decoder; None: of a kind whose size is not known."""


class ModelConfig(Record):
    """Shape of a decoder, in the names of a Hugging Face config.json.

    Where every layer is alike and plain (llama), the flat fields say it all. Where layers differ or
    are of another kind, `layer_kinds` and `layer_pattern` do; the flat fields are then what the
    configuration states, and costs never read them.
    """

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
    activation: Literal["silu", "gelu_tanh", "gelu"] = "silu"
    """Of the gate in the feed-forward part."""
    norm_gain_offset: float = 0.0
    """Added to the stored gains of every norm (Gemma: 1)."""
    embedding_scale: PositiveFloat = 1.0
    """What embedded tokens are multiplied by (Gemma: the root of the hidden size)."""
    query_scale: PositiveFloat | None = None
    """Of products of queries and keys; None: 1 / sqrt(head_dim)."""
    score_cap: PositiveFloat | None = None
    """Scores s become cap * tanh(s / cap) before the mask (Gemma 2)."""
    logit_cap: PositiveFloat | None = None
    """Logits likewise."""
    window_rope_theta: PositiveFloat | None = None
    """Base of the rotation in layers that attend within a window, never scaled (Gemma 3); None: as
    in all others."""
    rotary_share: PositiveFloat = 1.0
    """Share of each head's channels that is rotated: its first ones (Phi-4-mini, GLM-4)."""
    bos_token_id: NonNegativeInt | None = None
    eos_token_ids: tuple[NonNegativeInt, ...] = ()
    torch_dtype: Literal["fp32", "bf16", "fp16"] | None = None
    """Dtype that the checkpoint declares."""
    layer_kinds: tuple[LayerShape, ...] = ()
    """The different layers of the model; empty where all are the plain one of the flat fields."""
    layer_pattern: tuple[NonNegativeInt, ...] = ()
    """For each layer, which of `layer_kinds` it is."""
    norm_bias: bool = False
    """Layer norms with a bias instead of RMS norms (GPT-2, Falcon)."""
    learned_positions: NonNegativeInt = 0
    """Rows of a table of position embeddings (GPT-2)."""
    per_layer_input_size: NonNegativeInt = 0
    """Channels that each layer gets from a second embedding table (Gemma 4); 0: there is none."""
    per_layer_vocab_size: NonNegativeInt = 0
    mtp_layers: NonNegativeInt = 0
    """Layers for multi-token prediction, stored beside the decoder and counted apart."""
    vision: VisionTower | None = None
    quantization: CheckpointQuantization | None = None
    """How the checkpoint packs its weights; None: plain floats."""

    @model_validator(mode="after")
    def _pattern_fits(self) -> Self:
        if bool(self.layer_kinds) != bool(self.layer_pattern):
            raise ValueError("layer_kinds and layer_pattern go together")
        if self.layer_pattern:
            if len(self.layer_pattern) != self.num_hidden_layers:
                raise ValueError("layer_pattern must name every layer once")
            if max(self.layer_pattern) >= len(self.layer_kinds):
                raise ValueError("layer_pattern names a kind that is not there")
        return self

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads ({self.num_attention_heads}) must be a multiple of "
                f"num_key_value_heads ({self.num_key_value_heads})"
            )
        return self

    @property
    def layers(self) -> tuple[LayerShape, ...]:
        """Every layer, from the first to the last."""
        if not self.layer_kinds:
            return (self._plain_layer(),) * self.num_hidden_layers
        return tuple(self.layer_kinds[kind] for kind in self.layer_pattern)

    @property
    def kinds(self) -> tuple[tuple[LayerShape, int], ...]:
        """Each different layer and how often it occurs."""
        if not self.layer_kinds:
            return ((self._plain_layer(), self.num_hidden_layers),)
        counts = ((kind, self.layer_pattern.count(i)) for i, kind in enumerate(self.layer_kinds))
        return tuple((kind, count) for kind, count in counts if count)

    def _plain_layer(self) -> LayerShape:
        attention = SoftmaxAttention(
            query_heads=self.num_attention_heads,
            kv_heads=self.num_key_value_heads,
            key_dim=self.head_dim,
            value_dim=self.head_dim,
            qkv_bias=self.attention_bias,
            output_bias=self.output_bias,
            qk_norm=self.qk_norm,
        )
        mlp = DenseMlp(intermediate_size=self.intermediate_size, bias=self.mlp_bias)
        return LayerShape(attention=attention, mlp=mlp)

    @property
    def rotary_dim(self) -> int:
        """Channels of each head that are rotated, as transformers rounds them."""
        return int(self.head_dim * self.rotary_share)

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
    """Logical shape, as the model multiplies it: [out_features, in_features] for a projection,
    [experts, out_features, in_features] for the experts of a layer."""
    stored_dtype: str
    """fp32, bf16, fp16, or the name of a packed format (q4_1, q8_0, int8_g32, ...)."""
    stored_bytes: NonNegativeInt
    """Bytes in memory or in the file, scales and zeros included."""
    buffer: bool = False
    """Stored beside the parameters and none of them: a mask, a table, a balance of the router."""

    @property
    def parameters(self) -> int:
        count = 0 if self.buffer else 1
        for size in self.shape:
            count *= size
        return count


class WeightManifest(Record):
    """Every tensor of a model; made from file headers and from the engine alike."""

    origin: Literal["config", "safetensors", "gguf", "engine"]
    """`config`: derived from the shape alone, no file was read."""
    tensors: tuple[TensorSpec, ...] = Field(min_length=1)
    apart: tuple[TensorSpec, ...] = ()
    """What the files hold beside the decoder: multi-token prediction, vision towers, buffers."""

    @property
    def parameters(self) -> int:
        return sum(tensor.parameters for tensor in self.tensors)

    @property
    def stored_bytes(self) -> int:
        return sum(tensor.stored_bytes for tensor in self.tensors)
