"""Bytes that must fit: weights, KV cache and the activations that are alive at once."""

from dataclasses import dataclass
from typing import Final

from llmprof.costs.attention import AttentionDims
from llmprof.costs.attention_memory import gathered_bytes, kept_bytes, run_share
from llmprof.costs.kv_cache import kv_bytes_at, kv_bytes_per_token
from llmprof.costs.linear_state import state_bytes_per_sequence
from llmprof.costs.options import CostOptions
from llmprof.costs.tensor_parallel import shard_of
from llmprof.schema.cost import Phase, SequenceShape, StepShape
from llmprof.schema.layers import (
    AttentionShape,
    DenseMlp,
    LayerShape,
    LinearAttention,
    MlpShape,
)
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.settings import AttentionKind, KvLayout


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What a run holds at its largest step; of libraries, the workspace that the engine gives them."""

    weight_bytes: float
    kv_bytes: float
    activation_bytes: float

    @property
    def total_bytes(self) -> float:
        return self.weight_bytes + self.kv_bytes + self.activation_bytes


def kv_budget_bytes(
    *, total_bytes: float, fraction: float, own_peak_bytes: float, free_bytes: float
) -> float:
    """What a KV cache may take of a device that others use as well; never negative.

    Args:
        total_bytes: of the device.
        fraction: of it that this process may use in all.
        own_peak_bytes: weights and activations of this process at their largest.
        free_bytes: what is left beside every process, this one at its peak.
    """
    return max(0.0, min(total_bytes * fraction - own_peak_bytes, free_bytes))


def kv_bytes_used(model: ModelConfig, options: CostOptions, lengths: tuple[int, ...]) -> float:
    """Cache bytes that hold tokens a layer can still see, for sequences of these lengths."""
    if options.kv_layout is KvLayout.NONE:
        return 0.0
    return sum(
        kv_bytes_at(
            model, length, options.kv_bytes_per_number, tensor_parallel=options.tensor_parallel
        )
        for length in lengths
    )


def kv_bytes_reserved(
    model: ModelConfig, options: CostOptions, lengths: tuple[int, ...], *, max_tokens: int
) -> float:
    """Cache bytes set aside for sequences of these lengths that may grow to `max_tokens`.

    A contiguous cache reserves every sequence at its largest; a paged one whole blocks as needed.
    """
    match options.kv_layout:
        case KvLayout.NONE:
            tokens = 0
        case KvLayout.CONTIGUOUS:
            tokens = len(lengths) * max_tokens
        case KvLayout.PAGED:
            block = options.block_tokens
            tokens = sum(-(-length // block) * block for length in lengths)
    return tokens * kv_bytes_per_token(
        model, options.kv_bytes_per_number, tensor_parallel=options.tensor_parallel
    )


_NORMS_BEFORE: Final = 2
"""Of a layer; where it has more, what a block projects is normed too, beside itself."""


def peak_activation_bytes(model: ModelConfig, shape: StepShape, options: CostOptions) -> float:
    """The most that is alive at once in a step, whichever op it is in.

    The residual stream, the rotations of its positions and what attention keeps (the score buffers
    of the standard one, masks, a library's workspace) stay throughout. Beside them are, in attention:
    the queries, keys and values, the output and its projection or (standard only) its parts before
    they are put together, and what is gathered of the cache; in the feed forward: gate and up, their product (with
    experts: of all those of a token, and their input), its projection, and still the queries, keys and
    values, which a prefill attends to where they are; at the head: the logits and one copy of them
    for sampling, whole on each of several devices.
    """
    tokens = shape.new_tokens
    shard = shard_of(model, options.tensor_parallel)
    in_layers = max(_layer_peak(shard, kind, shape, options) for kind, _ in shard.kinds)
    head = 2 * shape.logit_rows * model.vocab_size * options.activation_bytes
    residual = tokens * (model.hidden_size + 2 * model.rotary_dim) * options.activation_bytes
    kept = kept_bytes(shard, shape, options) + options.workspace_bytes
    return float(residual + kept + max(in_layers, head))


def _layer_peak(
    model: ModelConfig, kind: LayerShape, shape: StepShape, options: CostOptions
) -> float:
    tokens = shape.new_tokens
    projected = (2 if len(kind.norms) > _NORMS_BEFORE else 1) * model.hidden_size
    of_attention = projected + _attention_numbers(kind.attention)
    attention = float(tokens * of_attention * options.activation_bytes)
    if not isinstance(kind.attention, LinearAttention):
        dims = AttentionDims.of(kind.attention)
        of_run = run_share(shape, options) * (dims.queries + dims.outputs)
        parts = _attention_numbers(kind.attention) + of_run
        if options.attention is AttentionKind.STANDARD:
            attention = max(attention, tokens * parts * options.activation_bytes)
        attention += gathered_bytes(dims, shape, options)
    around = projected if isinstance(kind.mlp, DenseMlp) else projected + model.hidden_size
    feed_forward = tokens * (around + _mlp_numbers(kind.mlp) + _projected_numbers(kind.attention))
    return max(attention, feed_forward * options.activation_bytes)


def _attention_numbers(shape: AttentionShape) -> int:
    """Of one token: queries, keys, values and outputs."""
    if isinstance(shape, LinearAttention):
        return shape.conv_channels + 2 * shape.value_heads * shape.value_dim
    return _projected_numbers(shape) + AttentionDims.of(shape).outputs


def _projected_numbers(shape: AttentionShape) -> int:
    """Of one token: queries, keys and values; nothing of them outlives a linear layer's attention."""
    if isinstance(shape, LinearAttention):
        return 0
    dims = AttentionDims.of(shape)
    return dims.queries + dims.new_keys + dims.new_values


def _mlp_numbers(shape: MlpShape) -> int:
    """Of one token: gate, up and their product."""
    if isinstance(shape, DenseMlp):
        return (3 if shape.gated else 2) * shape.intermediate_size
    routed = 3 * shape.experts_per_token * shape.intermediate_size
    beside = _mlp_numbers(shape.dense_beside) if shape.dense_beside else 0
    return max(routed, 3 * shape.shared_intermediate_size, beside)


def logits_bytes(model: ModelConfig, rows: int, bytes_per_number: int = 4) -> int:
    """Of so many rows; samplers take them in fp32."""
    return rows * model.vocab_size * bytes_per_number


def memory_need(
    model: ModelConfig,
    weights: WeightManifest,
    options: CostOptions,
    *,
    batch: int,
    prompt_tokens: int,
    max_tokens: int,
) -> MemoryNeed:
    """Predict a run of `batch` sequences that start with a prompt and end at `max_tokens`.

    The largest step is the prefill, or the last one: without a cache it computes the whole context
    again, and with some it gathers a copy of it.
    """
    repeats = options.kv_layout is KvLayout.NONE
    last = max_tokens if repeats else 1
    steps = tuple(
        StepShape(
            phase=Phase.PREFILL if new > 1 else Phase.DECODE,
            sequences=(SequenceShape(count=batch, new_tokens=new, cached_tokens=cached),),
            logit_rows=batch,
        )
        for new, cached in ((prompt_tokens, 0), (last, max_tokens - last))
    )
    one_sequence = kv_bytes_reserved(model, options, (max_tokens,), max_tokens=max_tokens)
    return MemoryNeed(
        weight_bytes=weights.stored_bytes,
        kv_bytes=batch * (one_sequence + state_bytes_per_sequence(model)),
        activation_bytes=max(peak_activation_bytes(model, step, options) for step in steps),
    )
