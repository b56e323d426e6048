"""One decoder layer on paper: what its attention and its feed-forward part are made of."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from llmprof.schema.record import Record


class SoftmaxAttention(Record):
    """Queries against cached keys and values: MHA, GQA and MQA differ in `kv_heads` alone."""

    kind: Literal["softmax"] = "softmax"
    query_heads: PositiveInt
    kv_heads: PositiveInt
    key_dim: PositiveInt
    """Of one head of queries and keys."""
    value_dim: PositiveInt
    window: PositiveInt | None = None
    """Tokens that a query sees, its own included; None: all before it."""
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    """RMS norm over each head of queries and keys."""
    output_gate: bool = False
    """The query projection is doubled by a gate on the output."""
    sinks: bool = False
    """One learned logit per query head in the softmax."""
    key_is_value: bool = False
    """No projection of its own for values: they are the keys before their norm and rotation."""
    shares_cache: bool = False
    """Reads the keys and values of an earlier layer: neither projects nor caches its own."""
    fused: bool = False
    """Queries, keys and values are stored as one matrix."""


class LatentAttention(Record):
    """Multi-head latent attention (DeepSeek-V2, section 2.1): one small latent is cached per token."""

    kind: Literal["latent"] = "latent"
    query_heads: PositiveInt
    q_lora_rank: PositiveInt | None
    """None: queries are projected in one step."""
    kv_lora_rank: PositiveInt
    nope_dim: PositiveInt
    """Of a head's queries and keys, not rotated."""
    rope_dim: PositiveInt
    """Of the rotated part; its key is cached beside the latent, once for all heads."""
    value_dim: PositiveInt
    bias: bool = False
    """On the projections to the latents and on the output."""


class LinearAttention(Record):
    """Gated delta rule with a short convolution: a state per sequence and nothing per token."""

    kind: Literal["linear"] = "linear"
    key_heads: PositiveInt
    value_heads: PositiveInt
    key_dim: PositiveInt
    value_dim: PositiveInt
    conv_kernel: PositiveInt
    split_inputs: bool = False
    """Four input projections (Qwen3.5) instead of two (Qwen3-Next)."""

    @property
    def conv_channels(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


AttentionShape = Annotated[
    SoftmaxAttention | LatentAttention | LinearAttention, Field(discriminator="kind")
]


class DenseMlp(Record):
    kind: Literal["dense"] = "dense"
    intermediate_size: PositiveInt
    gated: bool = True
    """Three matrices instead of two."""
    bias: bool = False
    fused: bool = False
    """Gate and up are stored as one matrix."""


class ExpertMlp(Record):
    """Mixture of experts, with experts that every token passes beside the routed ones."""

    kind: Literal["experts"] = "experts"
    num_experts: PositiveInt
    experts_per_token: PositiveInt
    intermediate_size: PositiveInt
    """Of one routed expert."""
    bias: bool = False
    """On the routed experts."""
    fused: bool = False
    """Gate and up of an expert are stored as one matrix."""
    shared_intermediate_size: NonNegativeInt = 0
    """Of all shared experts together; 0: none."""
    shared_gate: bool = False
    """A learned gate on the output of the shared expert."""
    router_bias: bool = False
    router_scales: bool = False
    """A learned scale per channel and per expert in the router (Gemma 4)."""
    normalized: bool = True
    """The weights of a token's experts add up to one; if not, they are its router's probabilities."""
    router_correction: bool = False
    """A correction per expert is stored in fp32: a buffer that balances load, not a parameter."""
    dense_beside: DenseMlp | None = None
    """A dense part that every token passes as well (Gemma 4)."""


MlpShape = Annotated[DenseMlp | ExpertMlp, Field(discriminator="kind")]


class LayerShape(Record):
    attention: AttentionShape
    mlp: MlpShape
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    """Norms over the hidden size."""
