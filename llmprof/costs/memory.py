"""Bytes that must fit: weights, KV cache and the activations that are alive at once."""

from dataclasses import dataclass

from llmprof.costs.attention import score_bytes
from llmprof.costs.groups import group_of_tensor
from llmprof.costs.options import CostOptions
from llmprof.schema.cost import OpGroup, Phase, SequenceShape, StepShape
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.settings import AttentionKind, KvLayout


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What a run holds at its largest step, without the libraries' own workspace."""

    weight_bytes: float
    kv_bytes: float
    activation_bytes: float

    @property
    def total_bytes(self) -> float:
        return self.weight_bytes + self.kv_bytes + self.activation_bytes


def weight_bytes_by_group(weights: WeightManifest) -> dict[OpGroup, int]:
    """Stored bytes by the group that reads them; a tied head is stored under `embedding`."""
    by_group: dict[OpGroup, int] = {}
    for tensor in weights.tensors:
        group = group_of_tensor(tensor.name)
        by_group[group] = by_group.get(group, 0) + tensor.stored_bytes
    return by_group


def kv_bytes_per_token(model: ModelConfig, bytes_per_number: float) -> float:
    """K and V of one token in all layers: 2 x layers x KV heads x head dim x bytes per number."""
    return 2 * model.num_hidden_layers * model.kv_size * bytes_per_number


def kv_bytes_used(model: ModelConfig, options: CostOptions, lengths: tuple[int, ...]) -> float:
    """Cache bytes that hold tokens, for sequences of these lengths."""
    if options.kv_layout is KvLayout.NONE:
        return 0.0
    return sum(lengths) * kv_bytes_per_token(model, options.kv_bytes_per_number)


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
    return tokens * kv_bytes_per_token(model, options.kv_bytes_per_number)


def peak_activation_bytes(model: ModelConfig, shape: StepShape, options: CostOptions) -> float:
    """The most that is alive at once in a step, whichever op it is in.

    The residual stream stays throughout. Beside it are, in attention: the normed input's queries,
    keys and values, the output, and (standard only) the scores and their softmax; in the feed
    forward: its input, gate and up, and their product; at the head: the logits and one copy of
    them for sampling.
    """
    tokens = shape.new_tokens
    heads = model.query_size + 2 * model.kv_size
    attention = tokens * (heads + model.query_size) * options.activation_bytes
    if options.attention is AttentionKind.STANDARD:
        attention += 2 * score_bytes(model, shape, options)
    feed_forward = tokens * (model.hidden_size + 3 * model.intermediate_size)
    head = 2 * shape.logit_rows * model.vocab_size
    residual = tokens * model.hidden_size
    largest = max(
        attention, feed_forward * options.activation_bytes, head * options.activation_bytes
    )
    return float(residual * options.activation_bytes + largest)


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

    Without a cache the largest step is the last one, which computes the whole context again.
    """
    tokens = max_tokens if options.kv_layout is KvLayout.NONE else prompt_tokens
    largest = StepShape(
        phase=Phase.PREFILL,
        sequences=(SequenceShape(count=batch, new_tokens=tokens, cached_tokens=0),),
        logit_rows=batch,
    )
    one_sequence = kv_bytes_reserved(model, options, (max_tokens,), max_tokens=max_tokens)
    return MemoryNeed(
        weight_bytes=weights.stored_bytes,
        kv_bytes=batch * one_sequence,
        activation_bytes=peak_activation_bytes(model, largest, options),
    )
