"""The size of a KV cache as a product that a reader can check."""

from llmprof import units
from llmprof.costs.kv_cache import (
    KvConvention,
    cached_numbers,
    held_tokens,
    kv_bytes_at,
    kv_bytes_per_token,
)
from llmprof.schema.layers import AttentionShape, LatentAttention, SoftmaxAttention
from llmprof.schema.model import ModelConfig


def token_formula(model: ModelConfig, bytes_per_number: float, *, devices: int = 1) -> str:
    """The product of `kv_bytes_per_token`, one for each kind of layer that caches.

    Raises:
        InputError: KV heads that `devices` cannot share out evenly.
    """
    size = _size(bytes_per_number)
    products = [
        f"{_factors(attention, layers)} x {size}"
        for attention, layers in _by_cache(model, windows=False)
    ]
    total = kv_bytes_per_token(model, bytes_per_number)
    held = kv_bytes_per_token(model, bytes_per_number, tensor_parallel=devices)
    sum_ = f"{' + '.join(products) or 'no layer caches'} = {units.exact(total)} bytes"
    return sum_ + _on_each(held, devices)


def context_formula(
    model: ModelConfig,
    tokens: int,
    bytes_per_number: float,
    *,
    sequences: int,
    devices: int = 1,
    convention: KvConvention = KvConvention.IDEAL,
    block_tokens: int = 1,
) -> str:
    """The product of the cache at a context, one for each kind of layer that holds as many tokens.

    Raises:
        InputError: KV heads that `devices` cannot share out evenly.
    """
    size, many = _size(bytes_per_number), f"{sequences} sequence{'' if sequences == 1 else 's'}"
    products = []
    windows = convention is not KvConvention.ENGINE_ALLOCATED
    for attention, layers in _by_cache(model, windows=windows):
        held = held_tokens(attention, tokens, convention, block_tokens)
        shown = " (window)" if held < tokens else " (whole blocks)" if held > tokens else ""
        products.append(
            f"{_factors(attention, layers)} x {size} x {units.exact(held)} tokens{shown} x {many}"
        )
    total, each = (
        sequences
        * kv_bytes_at(
            model,
            tokens,
            bytes_per_number,
            convention=convention,
            block_tokens=block_tokens,
            tensor_parallel=shares,
        )
        for shares in (1, devices)
    )
    sum_ = f"{' + '.join(products) or 'no layer caches'} = {units.exact(total)} bytes"
    return sum_ + _on_each(each, devices)


def _on_each(held: float, devices: int) -> str:
    """A latent is held whole by each of them, and KV heads by several where they outnumber the heads."""
    return "" if devices == 1 else f", of which each of {devices} devices holds {units.exact(held)}"


def _by_cache(model: ModelConfig, *, windows: bool) -> list[tuple[AttentionShape, int]]:
    """Layers that cache alike, together; with `windows` those that hold as many tokens."""
    counts: dict[tuple[object, ...], tuple[AttentionShape, int]] = {}
    for layer, count in model.kinds:
        attention = layer.attention
        if not cached_numbers(attention):
            continue
        key: tuple[object, ...] = (_factors(attention, 1),)
        if windows and isinstance(attention, SoftmaxAttention):
            key = (*key, attention.window)
        known = counts.get(key, (attention, 0))
        counts[key] = (known[0], known[1] + count)
    return list(counts.values())


def _factors(attention: AttentionShape, layers: int) -> str:
    if isinstance(attention, LatentAttention):
        return f"{layers} layers x ({attention.kv_lora_rank} latent + {attention.rope_dim} rotated key)"
    assert isinstance(attention, SoftmaxAttention), "no other kind caches per token"
    heads = f"{layers} layers x {attention.kv_heads} KV heads"
    if attention.key_dim == attention.value_dim:
        return f"2 (K and V) x {heads} x {attention.key_dim} head dim"
    return f"{heads} x ({attention.key_dim} K + {attention.value_dim} V)"


def _size(bytes_per_number: float) -> str:
    return f"{units.exact(bytes_per_number)} byte{'' if bytes_per_number == 1 else 's'}"
