"""FLOPs and bytes of one forward pass: the ops of a step, in the order in which they run."""

from llmprof.costs.attention import attention
from llmprof.costs.groups import StoredWeights
from llmprof.costs.ops import elementwise, linear, linear_flops, op_cost, unpacked_bytes
from llmprof.costs.options import CostOptions
from llmprof.schema.cost import ByteTraffic, OpCost, StepCost, StepShape
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.settings import KvLayout


def step_cost(
    model: ModelConfig, weights: WeightManifest, shape: StepShape, options: CostOptions
) -> StepCost:
    """Cost of a llama-family decoder step, from shapes and stored bytes alone.

    FLOPs are those of the matrix products, two per multiply-add; norms, rotations, softmax and the
    embedding look-up count none. Weights are read once per step as they are stored; of the
    embedding table only the rows that are looked up, unless a tied head reads it in full.

    Raises:
        ValueError: cached tokens in a layout without a cache, or a manifest that lacks a tensor.
        CapabilityError: a weight tensor that no op reads.
    """
    if options.kv_layout is KvLayout.NONE and shape.cached_tokens:
        raise ValueError("kv_cache.layout none holds no tokens, so a step has none cached")
    stored = StoredWeights.of(weights)
    ops = (
        _embedding(model, stored, shape, options),
        *_attention_block(model, stored, shape, options),
        *_feed_forward(model, stored, shape, options),
        *_head(model, stored, shape, options),
    )
    return StepCost(shape=shape, ops=ops)


def _embedding(
    model: ModelConfig, stored: StoredWeights, shape: StepShape, options: CostOptions
) -> OpCost:
    return elementwise(
        "embedding",
        calls=1,
        numbers=shape.new_tokens * model.hidden_size,
        weight_bytes=shape.new_tokens * stored.embedding_row,
        options=options,
    )


def _attention_block(
    model: ModelConfig, stored: StoredWeights, shape: StepShape, options: CostOptions
) -> tuple[OpCost, ...]:
    layers, tokens, hidden = model.num_hidden_layers, shape.new_tokens, model.hidden_size
    rotated = model.query_size + model.kv_size
    return (
        _norm("norm.input", layers, tokens * hidden, stored, options),
        linear(
            "qkv_projection",
            calls=layers,
            rows=tokens,
            in_features=hidden,
            out_features=model.query_size + 2 * model.kv_size,
            weight_bytes=stored.read_by("qkv_projection"),
            packed_weights=stored.packed_of("qkv_projection"),
            options=options,
        ),
        *_query_key_norms(model, stored, shape, options),
        elementwise("rope", calls=layers, numbers=2 * tokens * rotated, options=options),
        *_kv_append(model, shape, options),
        *attention(model, shape, options),
        linear(
            "output_projection",
            calls=layers,
            rows=tokens,
            in_features=model.query_size,
            out_features=hidden,
            weight_bytes=stored.read_by("output_projection"),
            packed_weights=stored.packed_of("output_projection"),
            options=options,
        ),
        _residual("output_projection.residual", model, shape, options),
    )


def _query_key_norms(
    model: ModelConfig, stored: StoredWeights, shape: StepShape, options: CostOptions
) -> tuple[OpCost, ...]:
    if not model.qk_norm:
        return ()
    layers, tokens = model.num_hidden_layers, shape.new_tokens
    return (
        _norm("norm.query", layers, tokens * model.query_size, stored, options),
        _norm("norm.key", layers, tokens * model.kv_size, stored, options),
    )


def _kv_append(model: ModelConfig, shape: StepShape, options: CostOptions) -> tuple[OpCost, ...]:
    """Keys and values of the new tokens go from activations into the cache, if there is one."""
    if options.kv_layout is KvLayout.NONE:
        return ()
    layers = model.num_hidden_layers
    numbers = layers * shape.new_tokens * 2 * model.kv_size
    traffic = ByteTraffic(
        kv_write=numbers * options.kv_bytes_per_number,
        activations=numbers * options.activation_bytes,
    )
    return (op_cost("kv_append", calls=layers, traffic=traffic, options=options),)


def _feed_forward(
    model: ModelConfig, stored: StoredWeights, shape: StepShape, options: CostOptions
) -> tuple[OpCost, ...]:
    layers, tokens = model.num_hidden_layers, shape.new_tokens
    hidden, inner = model.hidden_size, model.intermediate_size
    return (
        _norm("norm.post_attention", layers, tokens * hidden, stored, options),
        linear(
            "gate_up_projection",
            calls=layers,
            rows=tokens,
            in_features=hidden,
            out_features=2 * inner,
            weight_bytes=stored.read_by("gate_up_projection"),
            packed_weights=stored.packed_of("gate_up_projection"),
            options=options,
        ),
        elementwise("activation", calls=layers, numbers=3 * tokens * inner, options=options),
        linear(
            "down_projection",
            calls=layers,
            rows=tokens,
            in_features=inner,
            out_features=hidden,
            weight_bytes=stored.read_by("down_projection"),
            packed_weights=stored.packed_of("down_projection"),
            options=options,
        ),
        _residual("down_projection.residual", model, shape, options),
    )


def _head(
    model: ModelConfig, stored: StoredWeights, shape: StepShape, options: CostOptions
) -> tuple[OpCost, ...]:
    """Final norm, logits and sampling, on the rows that are sampled from; none if there are none."""
    rows = shape.logit_rows
    if not rows:
        return ()
    hidden, logits = rows * model.hidden_size, rows * model.vocab_size
    flops = linear_flops(rows, model.hidden_size, model.vocab_size)
    head = op_cost(
        "lm_head",
        calls=1,
        traffic=ByteTraffic(
            weights=stored.read_by("lm_head"),
            activations=hidden * options.activation_bytes,
            logits=logits * options.activation_bytes,
            copies=unpacked_bytes(rows, stored.packed_of("lm_head"), options),
        ),
        options=options,
        dense=flops,
        causal=flops,
    )
    return (
        _norm("norm.final", 1, hidden, stored, options),
        head,
        elementwise("sampling", calls=1, numbers=logits, options=options),
    )


def _norm(
    name: str, calls: int, numbers: int, stored: StoredWeights, options: CostOptions
) -> OpCost:
    """Reads and writes `numbers`, and reads its gains."""
    return elementwise(
        name,
        calls=calls,
        numbers=2 * numbers,
        weight_bytes=stored.read_by(name),
        options=options,
    )


def _residual(name: str, model: ModelConfig, shape: StepShape, options: CostOptions) -> OpCost:
    """Sum of two: both read, one written."""
    return elementwise(
        name,
        calls=model.num_hidden_layers,
        numbers=3 * shape.new_tokens * model.hidden_size,
        options=options,
    )
