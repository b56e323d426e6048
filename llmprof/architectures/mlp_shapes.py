"""The feed-forward part of every layer, from the fields of a configuration."""

from collections.abc import Callable, Mapping
from typing import Final

from llmprof.architectures import limits
from llmprof.architectures.attention_shapes import Basics
from llmprof.architectures.fields import Fields
from llmprof.errors import InputError
from llmprof.schema.layers import AttentionShape, DenseMlp, ExpertMlp, MlpShape, SoftmaxAttention


def mlp_shapes(
    fields: Fields, basics: Basics, dense: DenseMlp, attention: tuple[AttentionShape, ...]
) -> tuple[MlpShape, ...]:
    """One for each layer; `dense` is what a layer without experts has.

    Raises:
        InputError: a field is missing or malformed.
    """
    if basics.family.mlp == "gemma4":
        return _gemma4(fields, basics, dense, attention)
    return _BUILDERS[basics.family.mlp](fields, basics, dense)


def _dense(_fields: Fields, basics: Basics, dense: DenseMlp) -> tuple[MlpShape, ...]:
    return (dense,) * basics.layers


def _mixtral(fields: Fields, basics: Basics, dense: DenseMlp) -> tuple[MlpShape, ...]:
    experts = _experts(fields, "num_local_experts", dense.intermediate_size)
    return (experts,) * basics.layers


def _gpt_oss(fields: Fields, basics: Basics, dense: DenseMlp) -> tuple[MlpShape, ...]:
    experts = _experts(fields, "num_local_experts", dense.intermediate_size)
    experts = experts.model_copy(update={"bias": True, "router_bias": True, "fused": True})
    return (experts,) * basics.layers


def _qwen(fields: Fields, basics: Basics, dense: DenseMlp) -> tuple[MlpShape, ...]:
    """Experts in every `decoder_sparse_step`-th layer that is not in `mlp_only_layers`."""
    inner = fields.integer("moe_intermediate_size", limits.INTERMEDIATE)
    stated = _optional if basics.family.model_type == "qwen3_moe" else _stated
    shared = stated(fields, "shared_expert_intermediate_size", limits.INTERMEDIATE)
    experts = _experts(fields, "num_experts", inner).model_copy(
        update={
            "shared_intermediate_size": shared,
            "shared_gate": shared > 0,
            "normalized": fields.flag("norm_topk_prob", default=False),
        }
    )
    step = _optional(fields, "decoder_sparse_step", limits.LAYERS) or 1
    dense_layers = _indices(fields, "mlp_only_layers")
    shapes = tuple(
        dense if index in dense_layers or (index + 1) % step else experts
        for index in range(basics.layers)
    )
    if dense in shapes:
        fields.integer(
            "intermediate_size", limits.INTERMEDIATE
        )  # may only be left out beside experts
    return shapes


def _deepseek(fields: Fields, basics: Basics, dense: DenseMlp) -> tuple[MlpShape, ...]:
    """The first layers are dense; the shared experts are computed as one wide one."""
    inner = fields.integer("moe_intermediate_size", limits.INTERMEDIATE)
    shared = _stated(fields, "n_shared_experts", limits.EXPERTS) * inner
    experts = _experts(fields, "n_routed_experts", inner).model_copy(
        update={
            "shared_intermediate_size": shared,
            "router_correction": basics.family.model_type == "deepseek_v3",
        }
    )
    first = _stated(fields, "first_k_dense_replace", limits.Limits(0, limits.LAYERS.high))
    step = _optional(fields, "moe_layer_freq", limits.LAYERS) or 1
    return tuple(
        experts if index >= first and index % step == 0 else dense for index in range(basics.layers)
    )


def _gemma4(
    fields: Fields, basics: Basics, dense: DenseMlp, attention: tuple[AttentionShape, ...]
) -> tuple[MlpShape, ...]:
    """Layers that share a cache may be twice as wide; experts stand beside the dense part."""
    double = fields.flag("use_double_wide_mlp", default=False)
    wide = dense.model_copy(update={"intermediate_size": 2 * dense.intermediate_size})
    shapes = [
        wide if double and isinstance(one, SoftmaxAttention) and one.shares_cache else dense
        for one in attention
    ]
    if not fields.flag("enable_moe_block", default=False):
        return tuple(shapes)
    inner = fields.integer("moe_intermediate_size", limits.INTERMEDIATE)
    experts = _experts(fields, "num_experts", inner, per_token="top_k_experts")
    update = {"fused": True, "router_scales": True}
    return tuple(experts.model_copy(update=update | {"dense_beside": shape}) for shape in shapes)


def _experts(
    fields: Fields, key: str, inner: int, *, per_token: str = "num_experts_per_tok"
) -> ExpertMlp:
    count = fields.integer(key, limits.EXPERTS)
    chosen = fields.integer(per_token, limits.EXPERTS)
    if chosen > count:
        fields.wrong(per_token, f"expected no more than {key} ({count})")
    return ExpertMlp(num_experts=count, experts_per_token=chosen, intermediate_size=inner)


def _indices(fields: Fields, key: str) -> frozenset[int]:
    value = fields.raw(key) or []
    if not isinstance(value, list) or not all(
        isinstance(one, int) and not isinstance(one, bool) for one in value
    ):
        fields.wrong(key, "expected a list of layer numbers")
    return frozenset(value)


def _optional(fields: Fields, key: str, allowed: limits.Limits) -> int:
    """A size that may be left out or zero."""
    if not fields.has(key) or fields.raw(key) == 0:
        return 0
    return fields.integer(key, allowed)


def _stated(fields: Fields, key: str, allowed: limits.Limits) -> int:
    """A size that may be null or zero, but not left out: what it is then differs by implementation."""
    if not fields.states(key):
        raise InputError(f"{fields.where}: the field '{key}' is missing (0: none)")
    return _optional(fields, key, allowed)


_BUILDERS: Final[Mapping[str, Callable[[Fields, Basics, DenseMlp], tuple[MlpShape, ...]]]] = {
    "dense": _dense,
    "mixtral": _mixtral,
    "gpt_oss": _gpt_oss,
    "qwen": _qwen,
    "deepseek": _deepseek,
}
