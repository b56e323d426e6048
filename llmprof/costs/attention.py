"""Attention in a step: one fused op (flash), or three with a score matrix between them (standard).

Keys and values of cached tokens are `kv_read`, whole sequences once per step and per KV head: the
query heads of a group share them. Those of the new tokens were just produced, so they count as
activations, beside queries and outputs. Where a kernel needs the cache as one plain array, the copy
that is gathered for it counts as `copies`, written and read.
"""

from dataclasses import dataclass

from llmprof.costs.ops import (
    attended_pairs,
    attention_flops,
    causal_pairs,
    dense_pairs,
    op_cost,
    padded_pairs,
)
from llmprof.costs.options import CostOptions
from llmprof.schema.cost import ByteTraffic, KvRead, OpCost, SequenceShape, StepShape
from llmprof.schema.layers import LatentAttention, SoftmaxAttention
from llmprof.schema.settings import AttentionKind, KvLayout


@dataclass(frozen=True, slots=True)
class AttentionDims:
    """Numbers per token of what attention reads and writes in one layer."""

    query_heads: int
    key_dim: int
    value_dim: int
    new_keys: int
    new_values: int
    cached_keys: int
    """Of one cached token; of a latent all that is cached, which serves as keys and values."""
    cached_values: int
    window: int | None = None

    @classmethod
    def of(cls, layer: SoftmaxAttention | LatentAttention) -> "AttentionDims":
        if isinstance(layer, SoftmaxAttention):
            keys, values = layer.kv_heads * layer.key_dim, layer.kv_heads * layer.value_dim
            return cls(
                query_heads=layer.query_heads,
                key_dim=layer.key_dim,
                value_dim=layer.value_dim,
                new_keys=keys,
                new_values=values,
                cached_keys=keys,
                cached_values=values,
                window=layer.window,
            )
        key_dim = layer.nope_dim + layer.rope_dim
        return cls(
            query_heads=layer.query_heads,
            key_dim=key_dim,
            value_dim=layer.value_dim,
            new_keys=layer.query_heads * key_dim,
            new_values=layer.query_heads * layer.value_dim,
            cached_keys=layer.kv_lora_rank + layer.rope_dim,
            cached_values=0,
        )

    @property
    def queries(self) -> int:
        return self.query_heads * self.key_dim

    @property
    def outputs(self) -> int:
        return self.query_heads * self.value_dim


def attention(
    layer: SoftmaxAttention | LatentAttention, layers: int, shape: StepShape, options: CostOptions
) -> tuple[OpCost, ...]:
    """The attention ops of so many layers alike.

    Source of the FLOPs: Dao 2023, "FlashAttention-2", section 4.1 (4 T^2 d H, before halving for
    causal masks); here the causal count is exact, T (T + 1) / 2 pairs for a prompt of T tokens, and
    what a window hides is left out of what is computed. A latent's keys and values are counted as
    expanded once, when the token is new (DeepSeek-V2, section 2.1).
    """
    dims = AttentionDims.of(layer)
    match options.attention:
        case AttentionKind.FLASH:
            return (_flash(dims, layers, shape, options),)
        case AttentionKind.STANDARD:
            return _standard(dims, layers, shape, options)


def _flash(dims: AttentionDims, layers: int, shape: StepShape, options: CostOptions) -> OpCost:
    new = dims.queries + dims.new_keys + dims.new_values + dims.outputs
    cached = dims.cached_keys + dims.cached_values
    traffic = _traffic(dims, layers, shape, options, new=new, cached=cached)
    both = dims.key_dim + dims.value_dim
    return _matrix_op("attention", dims, layers, shape, options, traffic, dim=both)


def _standard(
    dims: AttentionDims, layers: int, shape: StepShape, options: CostOptions
) -> tuple[OpCost, ...]:
    """Scores are written, read and overwritten by softmax, and read again."""
    scores = ByteTraffic(scores=layers * score_bytes(dims.query_heads, shape, options))
    keys = _traffic(
        dims, layers, shape, options, new=dims.queries + dims.new_keys, cached=dims.cached_keys
    )
    values = _traffic(
        dims, layers, shape, options, new=dims.new_values + dims.outputs, cached=dims.cached_values
    )
    return (
        _matrix_op(
            "attention.scores", dims, layers, shape, options, keys + scores, dim=dims.key_dim
        ),
        op_cost("attention.softmax", calls=layers, traffic=scores + scores, options=options),
        _matrix_op(
            "attention.values", dims, layers, shape, options, values + scores, dim=dims.value_dim
        ),
    )


def _traffic(
    dims: AttentionDims,
    layers: int,
    shape: StepShape,
    options: CostOptions,
    *,
    new: int,
    cached: int,
) -> ByteTraffic:
    tokens = sum(one.count * _read_cached(dims, one, options) for one in shape.sequences)
    return ByteTraffic(
        kv_read=layers * tokens * cached * options.kv_bytes_per_number,
        activations=layers * shape.new_tokens * new * options.activation_bytes,
        copies=2 * layers * gathered_tokens(shape, options) * cached * options.activation_bytes,
    )


def _read_cached(dims: AttentionDims, sequence: SequenceShape, options: CostOptions) -> int:
    """Cached tokens that are read: those that can be seen, if the kernel skips the others.

    Standard attention has a score for every one.
    """
    if dims.window is not None and options.attention is AttentionKind.STANDARD:
        return sequence.cached_tokens
    return _visible_cached(dims, sequence)


def _visible_cached(dims: AttentionDims, sequence: SequenceShape) -> int:
    """Cached tokens that the first new token sees; those after it see no others."""
    cached = sequence.cached_tokens
    return cached if dims.window is None else min(cached, dims.window - 1)


def _matrix_op(
    name: str,
    dims: AttentionDims,
    layers: int,
    shape: StepShape,
    options: CostOptions,
    traffic: ByteTraffic,
    *,
    dim: int,
) -> OpCost:
    """One multiply-add per pair, query head and dimension, in every layer."""

    def flops(pairs: int) -> float:
        return layers * attention_flops(pairs, dims.query_heads, dim)

    return op_cost(
        name,
        calls=layers,
        traffic=traffic,
        options=options,
        dense=flops(dense_pairs(shape)),
        causal=flops(causal_pairs(shape)),
        attended=flops(attended_pairs(shape, window=dims.window)),
        stored=flops(stored_pairs(shape, options)),
    )


def stored_pairs(shape: StepShape, options: CostOptions) -> int:
    """Pairs that standard attention has a score for: gathered contexts are as long as the longest."""
    if options.kv_access.decode is KvRead.GATHERED:
        return padded_pairs(shape)
    return dense_pairs(shape)


def score_bytes(query_heads: int, shape: StepShape, options: CostOptions) -> int:
    """One layer's score matrix, every query head and sequence: the full rectangle is stored."""
    return query_heads * stored_pairs(shape, options) * options.score_bytes


def gathered_tokens(shape: StepShape, options: CostOptions) -> int:
    """Tokens whose keys or values are copied first, in one layer."""
    decodes = [one for one in shape.sequences if one.new_tokens == 1 and one.cached_tokens]
    chunks = [one for one in shape.sequences if one.new_tokens > 1 and one.cached_tokens]
    tokens = 0
    if decodes and options.kv_access.decode is KvRead.GATHERED:
        longest = max(map(_attended_tokens, decodes))
        tokens += sum(one.count for one in decodes) * _copied_tokens(longest, options)
    if options.kv_access.chunk is KvRead.GATHERED:
        tokens += sum(one.count * _copied_tokens(_attended_tokens(one), options) for one in chunks)
    return tokens


def _attended_tokens(sequence: SequenceShape) -> int:
    return sequence.cached_tokens + sequence.new_tokens


def _copied_tokens(attended: int, options: CostOptions) -> int:
    """Several blocks are copied whole, a part of a single one as it is needed."""
    block = options.block_tokens
    if options.kv_layout is not KvLayout.PAGED or attended <= block:
        return attended
    return -(-attended // block) * block
