"""Attention in a step: one fused op (flash), or three with a score matrix between them (standard).

Keys and values of cached tokens are `kv_read`, whole sequences once per step and per KV head: the
query heads of a group share them. Those of the new tokens were just produced, so they count as
activations, beside queries and outputs. Where a kernel needs the cache as one plain array, the copy
that is gathered for it counts as `copies`, written and read.
"""

from llmprof.costs.ops import attention_flops, causal_pairs, dense_pairs, op_cost, padded_pairs
from llmprof.costs.options import CostOptions
from llmprof.schema.cost import ByteTraffic, KvRead, OpCost, SequenceShape, StepShape
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import AttentionKind, KvLayout


def attention(model: ModelConfig, shape: StepShape, options: CostOptions) -> tuple[OpCost, ...]:
    """The attention ops of all layers.

    Source of the FLOPs: Dao 2023, "FlashAttention-2", section 4.1 (4 T^2 d H, before halving for
    causal masks); here the causal count is exact, T (T + 1) / 2 pairs for a prompt of T tokens.
    """
    match options.attention:
        case AttentionKind.FLASH:
            return (_flash(model, shape, options),)
        case AttentionKind.STANDARD:
            return _standard(model, shape, options)


def _flash(model: ModelConfig, shape: StepShape, options: CostOptions) -> OpCost:
    new_numbers = shape.new_tokens * 2 * (model.query_size + model.kv_size)
    traffic = ByteTraffic(
        kv_read=2 * _cached_bytes(model, shape, options),
        activations=_activation_bytes(model, new_numbers, options),
        copies=2 * _gathered_bytes(model, shape, options),
    )
    return _matrix_op("attention", model, shape, options, traffic, dims=2 * model.head_dim)


def _standard(model: ModelConfig, shape: StepShape, options: CostOptions) -> tuple[OpCost, ...]:
    """Scores are written, read and overwritten by softmax, and read again."""
    layers = model.num_hidden_layers
    scores = layers * score_bytes(model, shape, options)
    new_numbers = shape.new_tokens * (model.query_size + model.kv_size)
    traffic = ByteTraffic(
        kv_read=_cached_bytes(model, shape, options),
        activations=_activation_bytes(model, new_numbers, options),
        scores=scores,
        copies=_gathered_bytes(model, shape, options),
    )
    softmax = ByteTraffic(scores=2 * scores)
    return (
        _matrix_op("attention.scores", model, shape, options, traffic, dims=model.head_dim),
        op_cost("attention.softmax", calls=layers, traffic=softmax, options=options),
        _matrix_op("attention.values", model, shape, options, traffic, dims=model.head_dim),
    )


def _matrix_op(
    name: str,
    model: ModelConfig,
    shape: StepShape,
    options: CostOptions,
    traffic: ByteTraffic,
    *,
    dims: int,
) -> OpCost:
    """One multiply-add per pair, query head and dimension, in every layer."""
    layers, heads = model.num_hidden_layers, model.num_attention_heads
    return op_cost(
        name,
        calls=layers,
        traffic=traffic,
        options=options,
        dense=layers * attention_flops(dense_pairs(shape), heads, dims),
        causal=layers * attention_flops(causal_pairs(shape), heads, dims),
        stored=layers * attention_flops(stored_pairs(shape, options), heads, dims),
    )


def stored_pairs(shape: StepShape, options: CostOptions) -> int:
    """Pairs that standard attention has a score for: gathered contexts are as long as the longest."""
    if options.kv_access.decode is KvRead.GATHERED:
        return padded_pairs(shape)
    return dense_pairs(shape)


def score_bytes(model: ModelConfig, shape: StepShape, options: CostOptions) -> int:
    """One layer's score matrix, every query head and sequence: the full rectangle is stored."""
    return model.num_attention_heads * stored_pairs(shape, options) * options.score_bytes


def _cached_bytes(model: ModelConfig, shape: StepShape, options: CostOptions) -> float:
    """The cached keys of all layers; the values are as many."""
    numbers = model.num_hidden_layers * shape.cached_tokens * model.kv_size
    return numbers * options.kv_bytes_per_number


def _activation_bytes(model: ModelConfig, numbers: int, options: CostOptions) -> int:
    return model.num_hidden_layers * numbers * options.activation_bytes


def _gathered_bytes(model: ModelConfig, shape: StepShape, options: CostOptions) -> int:
    """The copied keys of all layers, written and read back; the values are as many."""
    decodes = [one for one in shape.sequences if one.new_tokens == 1 and one.cached_tokens]
    chunks = [one for one in shape.sequences if one.new_tokens > 1 and one.cached_tokens]
    tokens = 0
    if decodes and options.kv_access.decode is KvRead.GATHERED:
        longest = max(map(_attended_tokens, decodes))
        tokens += sum(one.count for one in decodes) * _copied_tokens(longest, options)
    if options.kv_access.chunk is KvRead.GATHERED:
        tokens += sum(one.count * _copied_tokens(_attended_tokens(one), options) for one in chunks)
    return 2 * _activation_bytes(model, tokens * model.kv_size, options)


def _attended_tokens(sequence: SequenceShape) -> int:
    return sequence.cached_tokens + sequence.new_tokens


def _copied_tokens(attended: int, options: CostOptions) -> int:
    """Several blocks are copied whole, a part of a single one as it is needed."""
    block = options.block_tokens
    if options.kv_layout is not KvLayout.PAGED or attended <= block:
        return attended
    return -(-attended // block) * block
