"""FLOPs and bytes of one forward pass: the ops of a step, in the order in which they run."""

from collections.abc import Iterator

from llmprof.costs.collectives import all_gather, all_reduce
from llmprof.costs.fusion import FINAL_NORM, fused, fused_layer, runs_fused
from llmprof.costs.groups import StoredWeights
from llmprof.costs.layer import LayerCosts
from llmprof.costs.ops import elementwise, linear, linear_flops, op_cost, unpacked_bytes
from llmprof.costs.options import CostOptions
from llmprof.costs.row_buckets import with_padding
from llmprof.costs.tensor_parallel import shard_of
from llmprof.schema.cost import ByteTraffic, OpCost, StepCost, StepShape
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.settings import KvLayout


def step_cost(
    model: ModelConfig, weights: WeightManifest, shape: StepShape, options: CostOptions
) -> StepCost:
    """Cost of a decoder step, from shapes and stored bytes alone.

    FLOPs are those of the matrix products, two per multiply-add; norms, rotations, softmax and the
    embedding look-up count none. Weights are read once per step as they are stored; of the
    embedding table only the rows that are looked up, unless a tied head reads it in full, and of a
    layer's experts as many as the step's tokens chose, or would on average (`experts_of_step`).

    `model` is the whole one, whatever shares it out; `weights` are those that one device holds.

    Raises:
        ValueError: cached tokens in a layout without a cache, or a manifest that lacks a tensor.
        CapabilityError: a weight tensor that no op reads.
        InputError: a model that `options.tensor_parallel` devices cannot share out.
    """
    if options.kv_layout is KvLayout.NONE and shape.cached_tokens:
        raise ValueError("kv_cache.layout none holds no tokens, so a step has none cached")
    model = shard_of(model, options.tensor_parallel)
    stored = StoredWeights.by_kind(weights, model.layer_pattern or (0,) * model.num_hidden_layers)
    ops = [
        *_embedding(model, stored[None], shape, options),
        *_layers(model, stored, shape, options),
        *_head(model, stored[None], shape, options),
        *_between_devices(model, shape, options),
    ]
    cost = StepCost(shape=shape, ops=tuple(_merged(ops)))
    return with_padding(cost, options.row_buckets)


def _layers(
    model: ModelConfig,
    stored: dict[int | None, StoredWeights],
    shape: StepShape,
    options: CostOptions,
) -> Iterator[OpCost]:
    """Layers of one kind are costed together."""
    kinds = model.layer_kinds or (model.layers[0],)
    pattern = model.layer_pattern or (0,) * model.num_hidden_layers
    for index, kind in enumerate(kinds):
        if layers := pattern.count(index):
            costs = LayerCosts(
                kind,
                layers,
                model.hidden_size,
                stored[index],
                shape,
                options,
                rotary_share=model.rotary_share,
            )
            ops = costs.ops()
            if runs_fused(shape.new_tokens, options):
                ops = iter(fused_layer(ops, kind, model.rotary_share, options))
            yield from ops
            yield from _per_layer_inputs(model, costs)


def _merged(ops: list[OpCost]) -> list[OpCost]:
    """Ops of different kinds of layers under one name become one."""
    merged: dict[str, OpCost] = {}
    for op in ops:
        known = merged.get(op.name)
        merged[op.name] = op if known is None else _sum(known, op)
    return list(merged.values())


def _sum(one: OpCost, other: OpCost) -> OpCost:
    return one.model_copy(
        update={
            "calls": one.calls + other.calls,
            "flops": one.flops + other.flops,
            "flops_dense": one.flops_dense + other.flops_dense,
            "flops_causal": one.flops_causal + other.flops_causal,
            "traffic": one.traffic + other.traffic,
        }
    )


def _embedding(
    model: ModelConfig, stored: StoredWeights, shape: StepShape, options: CostOptions
) -> Iterator[OpCost]:
    """Rows that are looked up, of the table of tokens and of further ones where there are any."""
    sizes = {"embedding": model.hidden_size}
    if model.learned_positions:
        sizes["embedding.positions"] = model.hidden_size
    if model.per_layer_input_size:
        sizes["embedding.per_layer"] = model.num_hidden_layers * model.per_layer_input_size
    rows = {
        "embedding": stored.embedding_rows,
        "embedding.positions": model.learned_positions,
        "embedding.per_layer": model.per_layer_vocab_size,
    }
    for name, size in sizes.items():
        row_bytes = stored.read_by(name) / rows[name]
        yield elementwise(
            name,
            calls=1,
            numbers=shape.new_tokens * size,
            weight_bytes=shape.new_tokens * row_bytes,
            options=options,
        )
    if model.per_layer_input_size:
        yield linear(
            "other.per_layer_inputs",
            calls=1,
            rows=shape.new_tokens,
            in_features=model.hidden_size,
            out_features=sizes["embedding.per_layer"],
            weight_bytes=stored.read_by("other.per_layer_inputs"),
            options=options,
        )
        yield elementwise(
            "norm.per_layer_inputs",
            calls=1,
            numbers=2 * shape.new_tokens * sizes["embedding.per_layer"],
            weight_bytes=stored.read_by("norm.per_layer_inputs"),
            options=options,
        )


def _per_layer_inputs(model: ModelConfig, costs: LayerCosts) -> Iterator[OpCost]:
    """Gemma 4: a gate on the layer's own embedding, and a projection back."""
    inner = model.per_layer_input_size
    if not inner:
        return
    for name, columns, out in (
        ("other.per_layer_gate", model.hidden_size, inner),
        ("other.per_layer_projection", inner, model.hidden_size),
    ):
        yield linear(
            name,
            calls=costs.layers,
            rows=costs.shape.new_tokens,
            in_features=columns,
            out_features=out,
            weight_bytes=costs.stored.read_by(name),
            packed_weights=costs.stored.packed_of(name),
            options=costs.options,
        )
    yield costs.norm("norm.per_layer", model.hidden_size)


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
    final = elementwise(
        "norm.final",
        calls=1,
        numbers=2 * hidden,
        weight_bytes=stored.read_by("norm.final"),
        options=options,
    )
    sampled = rows * model.vocab_size * options.tensor_parallel
    ops = fused((final, head), [FINAL_NORM] if runs_fused(rows, options) else [])
    return (*ops, elementwise("sampling", calls=1, numbers=sampled, options=options))


def _between_devices(
    shard: ModelConfig, shape: StepShape, options: CostOptions
) -> Iterator[OpCost]:
    """Sums of the embedding and of each half of each layer; the logits of every part, side by side."""
    if options.tensor_parallel == 1:
        return
    sums = 1 + 2 * shard.num_hidden_layers
    yield all_reduce(sums, shape.new_tokens * shard.hidden_size, options)
    if shape.logit_rows:
        yield all_gather(1, shape.logit_rows * shard.vocab_size, options)
