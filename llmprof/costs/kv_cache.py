"""Bytes of a KV cache: per token, per context, per device, and by which convention.

One figure does not fit all: a cache that drops what a window no longer sees holds less than one
that keeps every token of every layer, and a paged one holds whole blocks.
"""

from enum import StrEnum

from llmprof.costs.linear_state import state_bytes_per_sequence
from llmprof.errors import InputError
from llmprof.schema.layers import AttentionShape, LatentAttention, SoftmaxAttention
from llmprof.schema.model import ModelConfig


class KvConvention(StrEnum):
    IDEAL = "ideal"
    """Only what attention can still see: a layer with a window of W holds at most W tokens."""
    BLOCK_ROUNDED = "block_rounded"
    """As ideal, in whole blocks of every layer."""
    ENGINE_ALLOCATED = "engine_allocated"
    """Every layer holds every token, in whole blocks: what an engine without a cache of its own for
    windows sets aside, this one included."""


def cached_numbers(attention: AttentionShape, *, tensor_parallel: int = 1) -> int:
    """Numbers that one layer caches per token, on one device.

    Of a latent it is the latent and the rotated key, once for keys and values and all heads, the
    same on every device. KV heads are shared out, and repeated where devices outnumber them.

    Raises:
        InputError: KV heads that cannot be shared out evenly.
    """
    match attention:
        case SoftmaxAttention(shares_cache=False):
            heads = heads_per_device(attention.kv_heads, tensor_parallel)
            return heads * (attention.key_dim + attention.value_dim)
        case LatentAttention():
            return attention.kv_lora_rank + attention.rope_dim
        case _:
            return 0


def heads_per_device(heads: int, devices: int) -> int:
    """KV heads on each of so many devices.

    Raises:
        InputError: the one is no multiple of the other.
    """
    if heads % devices and devices % heads:
        raise InputError(
            f"{heads} KV heads cannot be shared out evenly over {devices} devices",
            remedy=f"Set parallel.tensor to a divisor or a multiple of {heads}",
        )
    return max(1, heads // devices)


def kv_bytes_per_token(
    model: ModelConfig, bytes_per_number: float, *, tensor_parallel: int = 1
) -> float:
    """Keys and values of one token in all layers, on one device.

    In a plain model: 2 x layers x KV heads x head dim x bytes per number. Layers with a linear
    state, and layers that read another one's cache, add nothing.

    Raises:
        InputError: KV heads that cannot be shared out evenly.
    """
    numbers = sum(
        count * cached_numbers(layer.attention, tensor_parallel=tensor_parallel)
        for layer, count in model.kinds
    )
    return numbers * bytes_per_number


def held_tokens(
    attention: AttentionShape, tokens: int, convention: KvConvention, block_tokens: int = 16
) -> int:
    """Tokens that one layer holds of a context of so many."""
    held = tokens
    if convention is not KvConvention.ENGINE_ALLOCATED and isinstance(attention, SoftmaxAttention):
        held = min(tokens, attention.window or tokens)
    if convention is KvConvention.IDEAL:
        return held
    return -(-held // block_tokens) * block_tokens


def kv_bytes_at(
    model: ModelConfig,
    tokens: int,
    bytes_per_number: float,
    *,
    convention: KvConvention = KvConvention.IDEAL,
    block_tokens: int = 16,
    tensor_parallel: int = 1,
) -> float:
    """Cache of one sequence of so many tokens, on one device; states of linear layers come on top.

    Raises:
        InputError: KV heads that cannot be shared out evenly.
    """
    return bytes_per_number * sum(
        count
        * held_tokens(layer.attention, tokens, convention, block_tokens)
        * cached_numbers(layer.attention, tensor_parallel=tensor_parallel)
        for layer, count in model.kinds
    )


def sequence_bytes(model: ModelConfig, tokens: int, bytes_per_number: float) -> float:
    """Ideal cache and states of one sequence of so many tokens, on one device."""
    return kv_bytes_at(model, tokens, bytes_per_number) + state_bytes_per_sequence(model)
