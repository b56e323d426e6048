"""The ops of the layers of one kind, in the order in which they run."""

from collections.abc import Iterator
from dataclasses import dataclass

from llmprof.costs.attention import attention
from llmprof.costs.groups import StoredWeights
from llmprof.costs.linear_state import state_ops
from llmprof.costs.ops import elementwise, linear, op_cost
from llmprof.costs.options import CostOptions
from llmprof.costs.routing import experts_of_step
from llmprof.schema.cost import ByteTraffic, OpCost, StepShape
from llmprof.schema.layers import (
    DenseMlp,
    ExpertMlp,
    LatentAttention,
    LayerShape,
    LinearAttention,
    SoftmaxAttention,
)
from llmprof.schema.settings import KvLayout

_NORM_OPS = {
    "input_layernorm": "norm.input",
    "post_attention_layernorm": "norm.post_attention",
    "post_self_attn_layernorm": "norm.post_self_attention",
    "post_mlp_layernorm": "norm.post_mlp",
    "pre_feedforward_layernorm": "norm.pre_feedforward",
    "post_feedforward_layernorm": "norm.post_feedforward",
    "pre_feedforward_layernorm_2": "norm.pre_experts",
    "post_feedforward_layernorm_1": "norm.post_dense",
    "post_feedforward_layernorm_2": "norm.post_experts",
    "ln_attn": "norm.attention",
    "ln_mlp": "norm.feed_forward",
}


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """So many layers alike, in one step."""

    layer: LayerShape
    layers: int
    hidden: int
    stored: StoredWeights
    """Of these layers alone."""
    shape: StepShape
    options: CostOptions
    rotary_share: float = 1.0
    """Of the channels of each head."""

    def ops(self) -> Iterator[OpCost]:
        first, *others = (_NORM_OPS[name] for name in self.layer.norms)
        yield self.norm(first, self.hidden)
        match self.layer.attention:
            case SoftmaxAttention() as plain:
                yield from self._softmax(plain)
            case LatentAttention() as latent:
                yield from self._latent(latent)
            case LinearAttention() as state:
                yield from self._linear_attention(state)
        yield self._residual("output_projection.residual")
        for name in others:
            yield self.norm(name, self.hidden)
        match self.layer.mlp:
            case DenseMlp() as dense:
                yield from self._dense(dense, "")
            case ExpertMlp() as experts:
                yield from self._experts(experts)
        yield self._residual("down_projection.residual")

    def norm(self, name: str, size: int) -> OpCost:
        """Reads and writes `size` numbers per token, and reads its gains."""
        return self._elementwise(name, 2 * size, weight_bytes=self.stored.read_by(name))

    def _softmax(self, shape: SoftmaxAttention) -> Iterator[OpCost]:
        queries = shape.query_heads * shape.key_dim
        keys, values = shape.kv_heads * shape.key_dim, shape.kv_heads * shape.value_dim
        new_keys, new_values = (0, 0) if shape.shares_cache else (keys, values)
        projected = queries * (2 if shape.output_gate else 1) + new_keys
        projected += 0 if shape.key_is_value else new_values
        yield self._linear("qkv_projection", self.hidden, projected)
        if shape.qk_norm:
            yield self.norm("norm.query", queries)
            if not shape.shares_cache:
                yield self.norm("norm.key", keys)
        rotated = int(shape.key_dim * self.rotary_share)
        heads = shape.query_heads + (0 if shape.shares_cache else shape.kv_heads)
        yield self._elementwise("rope", 2 * heads * rotated)
        if not shape.shares_cache:
            yield from self._kv_append(keys + values)
        sinks = self.stored.bytes_by_op.get("attention", 0) if shape.sinks else 0
        read = ByteTraffic(weights=sinks)
        for op in attention(shape, self.layers, self.shape, self.options):
            yield op.model_copy(update={"traffic": op.traffic + read})
            read = ByteTraffic()
        outputs = shape.query_heads * shape.value_dim
        yield self._linear("output_projection", outputs, self.hidden)

    def _latent(self, shape: LatentAttention) -> Iterator[OpCost]:
        heads, latent = shape.query_heads, shape.kv_lora_rank
        queries = heads * (shape.nope_dim + shape.rope_dim)
        if shape.q_lora_rank is None:
            yield self._linear("qkv_projection", self.hidden, queries)
        else:
            yield self._linear("qkv_projection.query_latent", self.hidden, shape.q_lora_rank)
            yield self.norm("norm.query_latent", shape.q_lora_rank)
            yield self._linear("qkv_projection.query", shape.q_lora_rank, queries)
        yield self._linear("qkv_projection.kv_latent", self.hidden, latent + shape.rope_dim)
        yield self.norm("norm.kv_latent", latent)
        expanded = heads * (shape.nope_dim + shape.value_dim)
        yield self._linear("qkv_projection.kv", latent, expanded)
        yield self._elementwise("rope", 2 * (heads + 1) * shape.rope_dim)
        yield from self._kv_append(latent + shape.rope_dim)
        yield from attention(shape, self.layers, self.shape, self.options)
        yield self._linear("output_projection", heads * shape.value_dim, self.hidden)

    def _linear_attention(self, shape: LinearAttention) -> Iterator[OpCost]:
        values = shape.value_heads * shape.value_dim
        projected = shape.conv_channels + values + 2 * shape.value_heads
        yield self._linear("qkv_projection.linear", self.hidden, projected)
        yield from state_ops(shape, self.layers, self.stored, self.shape, self.options)
        yield self.norm("norm.state", values)
        yield self._linear("output_projection.linear", values, self.hidden)

    def _kv_append(self, numbers: int) -> Iterator[OpCost]:
        """Keys and values of the new tokens go from activations into the cache, if there is one."""
        if self.options.kv_layout is KvLayout.NONE:
            return
        total = self.layers * self.shape.new_tokens * numbers
        traffic = ByteTraffic(
            kv_write=total * self.options.kv_bytes_per_number,
            activations=total * self.options.activation_bytes,
        )
        yield op_cost("kv_append", calls=self.layers, traffic=traffic, options=self.options)

    def _dense(self, shape: DenseMlp, part: str) -> Iterator[OpCost]:
        inner, wide = shape.intermediate_size, 2 if shape.gated else 1
        yield self._linear(f"gate_up_projection{part}", self.hidden, wide * inner)
        yield self._elementwise(f"activation{part}", (wide + 1) * inner)
        yield self._linear(f"down_projection{part}", inner, self.hidden)

    def _experts(self, shape: ExpertMlp) -> Iterator[OpCost]:
        """Every token passes its own experts; a step reads those that any of its tokens chose."""
        if shape.dense_beside:
            yield from self._dense(shape.dense_beside, "")
        yield self._linear("gate_up_projection.router", self.hidden, shape.num_experts)
        if shape.shared_intermediate_size:
            shared = DenseMlp(intermediate_size=shape.shared_intermediate_size)
            yield from self._dense(shared, ".shared")
            if shape.shared_gate:
                yield self._linear("gate_up_projection.shared_gate", self.hidden, 1)
        inner = shape.intermediate_size
        numbers = 3 * self.shape.new_tokens * shape.experts_per_token * inner
        yield self._chosen("gate_up_projection.experts", self.hidden, 2 * inner, shape)
        yield elementwise(
            "activation.experts", calls=self.layers, numbers=numbers, options=self.options
        )
        yield self._chosen("down_projection.experts", inner, self.hidden, shape)

    def _linear(self, name: str, columns: int, out: int) -> OpCost:
        return linear(
            name,
            calls=self.layers,
            rows=self.shape.new_tokens,
            in_features=columns,
            out_features=out,
            weight_bytes=self.stored.read_by(name),
            packed_weights=self.stored.packed_of(name),
            fp8=self.stored.is_fp8(name),
            options=self.options,
        )

    def _chosen(self, name: str, columns: int, out: int, shape: ExpertMlp) -> OpCost:
        """A product with each expert that any token chose: the weights of the others are not read."""
        tokens = self.shape.new_tokens
        read = experts_of_step(shape, tokens, self.options.experts_read)
        rows, share = tokens * shape.experts_per_token, read / shape.num_experts
        return linear(
            name,
            calls=self.layers,
            rows=rows,
            in_features=columns,
            out_features=out,
            weight_bytes=self.stored.read_by(name) * share,
            packed_weights=self.stored.packed_of(name) * share,
            rows_each=rows / read,
            fp8=self.stored.is_fp8(name),
            options=self.options,
        )

    def _elementwise(self, name: str, numbers_per_token: int, weight_bytes: float = 0.0) -> OpCost:
        return elementwise(
            name,
            calls=self.layers,
            numbers=self.shape.new_tokens * numbers_per_token,
            weight_bytes=weight_bytes,
            options=self.options,
        )

    def _residual(self, name: str) -> OpCost:
        """Sum of two: both read, one written."""
        return self._elementwise(name, 3 * self.hidden)
