"""The attention of every layer, from the fields of a configuration."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from llmprof.architectures import limits
from llmprof.architectures.families import Family
from llmprof.architectures.fields import Fields
from llmprof.architectures.layer_types import linear_layers, stated_types, windows
from llmprof.errors import InputError
from llmprof.schema.layers import (
    AttentionShape,
    LatentAttention,
    LinearAttention,
    SoftmaxAttention,
)


@dataclass(frozen=True, slots=True)
class Basics:
    """What the shapes of all layers start from."""

    family: Family
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    positions: int
    qkv_bias: bool
    output_bias: bool


def attention_shapes(fields: Fields, basics: Basics) -> tuple[AttentionShape, ...]:
    """One for each layer.

    Raises:
        InputError: a field is missing or malformed.
        CapabilityError: kinds of layers that the family does not have.
    """
    return _BUILDERS[basics.family.attention](fields, basics)


def head_dim(fields: Fields, family: Family, hidden: int, heads: int) -> int:
    """Of a query; stated, or the hidden size shared out where the family does so.

    Raises:
        InputError: missing, or hidden channels that do not divide into heads.
    """
    if family.attention == "latent":
        sizes = ("qk_nope_head_dim", "qk_rope_head_dim")
        found = sum(fields.integer(key, limits.HEAD_DIM) for key in sizes)
    elif fields.has("head_dim") or family.explicit_head_dim:
        found = fields.integer("head_dim", limits.HEAD_DIM)
    elif hidden % heads:
        fields.wrong("hidden_size", f"expected a multiple of num_attention_heads ({heads})")
    else:
        found = hidden // heads
    if found % 2:
        raise InputError(f"{fields.where}: a head_dim of {found} cannot be rotated in pairs")
    return found


def kv_heads(fields: Fields, family: Family, heads: int) -> int:
    """Heads of keys and values; as many as queries where the family lets the field be left out."""
    key = "num_key_value_heads"
    if family.kv_heads == "as_heads":
        return heads
    if family.kv_heads == "falcon" and not fields.flag("new_decoder_architecture", default=False):
        return 1 if fields.flag("multi_query", default=True) else heads
    optional = family.kv_heads in ("optional", "falcon") or fields.states(key)
    if not fields.has(key) and optional:
        return heads
    found = fields.integer(key, limits.HEADS)
    if heads % found:
        fields.wrong(key, f"expected a divisor of num_attention_heads ({heads})")
    return found


def _softmax(fields: Fields, basics: Basics) -> tuple[AttentionShape, ...]:
    family = basics.family
    plain = _full_attention(basics).model_copy(update={"sinks": family.mlp == "gpt_oss"})
    each = windows(fields, family, basics.layers, basics.positions)
    return tuple(plain.model_copy(update={"window": window}) for window in each)


def _full_attention(basics: Basics) -> SoftmaxAttention:
    return SoftmaxAttention(
        query_heads=basics.heads,
        kv_heads=basics.kv_heads,
        key_dim=basics.head_dim,
        value_dim=basics.head_dim,
        qkv_bias=basics.qkv_bias,
        output_bias=basics.output_bias,
        qk_norm=basics.family.qk_norm,
        output_gate=basics.family.output_gate,
        fused=basics.family.fused,
    )


def _latent(fields: Fields, basics: Basics) -> tuple[AttentionShape, ...]:
    """Fields under other names are an error: num_key_value_heads says nothing about the cache."""
    rank = "q_lora_rank"
    if not fields.states(rank):
        raise InputError(f"{fields.where}: the field '{rank}' is missing (null: no query latent)")
    shape = LatentAttention(
        query_heads=basics.heads,
        q_lora_rank=fields.integer(rank, limits.HIDDEN) if fields.has(rank) else None,
        kv_lora_rank=fields.integer("kv_lora_rank", limits.HIDDEN),
        nope_dim=fields.integer("qk_nope_head_dim", limits.HEAD_DIM),
        rope_dim=fields.integer("qk_rope_head_dim", limits.HEAD_DIM),
        value_dim=fields.integer("v_head_dim", limits.HEAD_DIM),
        bias=basics.output_bias,
    )
    return (shape,) * basics.layers


def _hybrid(fields: Fields, basics: Basics) -> tuple[AttentionShape, ...]:
    state = LinearAttention(
        key_heads=fields.integer("linear_num_key_heads", limits.HEADS),
        value_heads=fields.integer("linear_num_value_heads", limits.HEADS),
        key_dim=fields.integer("linear_key_head_dim", limits.HEAD_DIM),
        value_dim=fields.integer("linear_value_head_dim", limits.HEAD_DIM),
        conv_kernel=fields.integer("linear_conv_kernel_dim", limits.CONV_KERNEL),
        split_inputs=basics.family.model_type != "qwen3_next",
    )
    full = _full_attention(basics)
    return tuple(state if linear else full for linear in linear_layers(fields, basics.layers))


def _gemma4(fields: Fields, basics: Basics) -> tuple[AttentionShape, ...]:
    """Layers in full have larger heads, perhaps fewer, whose keys may serve as values too."""
    shared = _optional(fields, "num_kv_shared_layers", limits.Limits(0, basics.layers - 1))
    same = fields.flag("attention_k_eq_v", default=False)
    local = _full_attention(basics)
    large = fields.integer("global_head_dim", limits.HEAD_DIM)
    heads = basics.kv_heads
    if same and fields.has("num_global_key_value_heads"):
        heads = fields.integer("num_global_key_value_heads", limits.HEADS)
    wide = {"key_dim": large, "value_dim": large, "kv_heads": heads, "key_is_value": same}
    each = _gemma4_windows(fields, basics)
    return tuple(
        local.model_copy(
            update={"window": window, "shares_cache": index >= basics.layers - shared}
            | (wide if full else {})
        )
        for index, (full, window) in enumerate(each)
    )


def _gemma4_windows(fields: Fields, basics: Basics) -> list[tuple[bool, int | None]]:
    """Whether each layer is of the full kind, and its window; the last one is always full."""
    each = windows(fields, basics.family, basics.layers, 2**62)
    types = stated_types(fields, basics.layers)
    full = (
        [window is None for window in each] if not types else [t == "full_attention" for t in types]
    )
    full[-1] = True
    return [
        (is_full, None if is_full or (window or 0) >= basics.positions else window)
        for is_full, window in zip(full, each, strict=True)
    ]


def _optional(fields: Fields, key: str, allowed: limits.Limits) -> int:
    return fields.integer(key, allowed) if fields.has(key) else 0


_BUILDERS: Final[Mapping[str, Callable[[Fields, Basics], tuple[AttentionShape, ...]]]] = {
    "softmax": _softmax,
    "latent": _latent,
    "hybrid": _hybrid,
    "gemma4": _gemma4,
}
