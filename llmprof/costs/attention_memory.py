"""What attention holds beside its inputs and outputs: scores, masks, and copies of the cache.

The engine attends to one run of sequences after the other: decoding tokens together; prompts of
one length together where a contiguous cache holds them side by side, else each by itself.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from llmprof.costs.attention import AttentionDims, gathered_tokens
from llmprof.costs.ops import padded_pairs
from llmprof.costs.options import CostOptions
from llmprof.schema.cost import SequenceShape, StepShape
from llmprof.schema.layers import LatentAttention, LinearAttention, SoftmaxAttention
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import AttentionKind, KvLayout

_SCORE_BUFFERS: Final = 2
"""The scores, and their softmax."""
_ROUNDED_TO: Final = 1 << 18
"""Numbers: a context that grows token by token gets new memory now and then, not in every step."""


def score_buffer_numbers(numbers: int) -> int:
    """Room of the buffer that holds a score matrix of so many numbers."""
    return -(-numbers // _ROUNDED_TO) * _ROUNDED_TO


def kept_bytes(model: ModelConfig, shape: StepShape, options: CostOptions) -> float:
    """What stays from layer to layer: the score buffers of standard attention, and the masks.

    Masks of decoding tokens are small and left out.
    """
    attending = [kind.attention for kind, _ in model.kinds]
    softmax = [one for one in attending if not isinstance(one, LinearAttention)]
    masks = _mask_bytes(model, softmax, shape, options)
    if options.attention is not AttentionKind.STANDARD or not softmax:
        return masks
    pairs = max(_pairs_of_runs(shape, options))
    numbers = max(one.query_heads for one in softmax) * pairs
    return masks + _SCORE_BUFFERS * score_buffer_numbers(numbers) * options.score_bytes


def gathered_bytes(dims: AttentionDims, shape: StepShape, options: CostOptions) -> float:
    """Copies of cached keys and values, of one layer; beside them as stored, until converted."""
    numbers = gathered_tokens(shape, options) * (dims.cached_keys + dims.cached_values)
    stored = options.kv_bytes_per_number
    converted = options.activation_bytes if stored != options.activation_bytes else 0
    return numbers * (stored + converted)


def run_share(shape: StepShape, options: CostOptions) -> float:
    """The largest part of a step's new tokens that is attended to at once; 1 where all are."""
    decodes = sum(one.count for one in shape.sequences if one.new_tokens == 1)
    tokens = [one.new_tokens * _together(one, options) for one in shape.sequences]
    return max(decodes, *tokens) / shape.new_tokens


def _together(sequence: SequenceShape, options: CostOptions) -> int:
    """Sequences alike that one run takes."""
    contiguous = options.kv_layout is KvLayout.CONTIGUOUS
    return sequence.count if contiguous or sequence.new_tokens == 1 else 1


def _pairs_of_runs(shape: StepShape, options: CostOptions) -> Iterator[int]:
    """Scores of one query head in each run."""
    decodes = tuple(one for one in shape.sequences if one.new_tokens == 1)
    yield padded_pairs(shape.model_copy(update={"sequences": decodes}))
    for one in shape.sequences:
        attended = one.cached_tokens + one.new_tokens
        yield _together(one, options) * one.new_tokens * attended


def _mask_bytes(
    model: ModelConfig,
    softmax: Sequence[SoftmaxAttention | LatentAttention],
    shape: StepShape,
    options: CostOptions,
) -> float:
    """Booleans [new, attended] of each run and each window: what is visible, and its opposite.

    A fused kernel masks a whole prompt itself, unless a window hides a part of it; it is told what
    is visible, and only where scores are capped (by tiles of our own) what is hidden.
    """
    standard = options.attention is AttentionKind.STANDARD
    copies = 2 if standard or model.score_cap is not None else 1
    windows = {one.window for one in softmax if isinstance(one, SoftmaxAttention)}
    total = 0
    for one in shape.sequences:
        if one.new_tokens == 1:
            continue
        attended = one.cached_tokens + one.new_tokens
        needed = {window if window and window < attended else None for window in windows}
        if not standard and model.score_cap is None and not one.cached_tokens:
            needed.discard(None)
        runs = one.count // _together(one, options)
        total += runs * len(needed) * one.new_tokens * attended * copies
    return float(total)
