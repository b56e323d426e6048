"""Names of tensors in a family's checkpoints, and the usual names that the rest of llmprof uses.

Source: the modeling files of Hugging Face transformers, and the index files of the checkpoints.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_GATE: Final = {"mlp.gate": "mlp.router"}
_QWEN: Final = _GATE | {"mlp.shared_expert": "mlp.shared_experts"}
_MODULES: Final[Mapping[str, Mapping[str, str]]] = {
    "mixtral": {
        "block_sparse_moe.gate": "mlp.router",
        "block_sparse_moe.experts.w1": "mlp.experts.gate_proj",
        "block_sparse_moe.experts.w3": "mlp.experts.up_proj",
        "block_sparse_moe.experts.w2": "mlp.experts.down_proj",
    },
    "qwen2_moe": _QWEN,
    "qwen3_moe": _QWEN,
    "qwen3_next": _QWEN,
    "qwen3_5_moe": _QWEN,
    "deepseek_v2": _GATE,
    "deepseek_v3": _GATE,
    "gemma4": {"router.proj": "mlp.router", "router": "mlp.router", "experts": "mlp.experts"},
    "gpt2": {
        "ln_1": "input_layernorm",
        "ln_2": "post_attention_layernorm",
        "attn.c_attn": "self_attn.qkv_proj",
        "attn.c_proj": "self_attn.o_proj",
        "mlp.c_fc": "mlp.up_proj",
        "mlp.c_proj": "mlp.down_proj",
    },
    "falcon": {
        "self_attention.query_key_value": "self_attn.qkv_proj",
        "self_attention.dense": "self_attn.o_proj",
        "mlp.dense_h_to_4h": "mlp.up_proj",
        "mlp.dense_4h_to_h": "mlp.down_proj",
    },
}
"""Family -> module within a layer in the file -> the usual name, longest first where they nest."""

_GLOBAL: Final = {
    "wte": "model.embed_tokens",
    "wpe": "model.embed_positions",
    "word_embeddings": "model.embed_tokens",
    "ln_f": "model.norm",
}
_PREFIX: Final = re.compile(r"^(?:model\.language_model\.|language_model\.model\.|transformer\.)")
_LAYER: Final = re.compile(r"^(?:model\.)?(?:layers|h)\.(\d{1,4})\.(.+)$", re.ASCII)
_EXPERT: Final = re.compile(r"\bexperts\.(\d{1,5})\.", re.ASCII)
_PART: Final = re.compile(
    r"[._](qweight|qzeros|scales|g_idx|weight_scale_inv|weight_scale|weight_packed|weight_shape"
    r"|weight_zero_point|weight_g_idx|input_scale|blocks|SCB|weight_format)$"
    r"|\.weight\.(absmax|quant_map|nested_absmax|nested_quant_map|quant_state\.\w+)$",
    re.ASCII,
)
"""What stores a part of a packed matrix."""


@dataclass(frozen=True, slots=True)
class StoredName:
    """Where a stored tensor belongs."""

    name: str
    """Of the whole matrix, usual and without the number of the expert."""
    expert: int | None
    part: str | None
    """Of a packed matrix: qweight, scales, ...; None for a plain tensor."""


def usual_name(name: str, family: str) -> StoredName:
    """`transformer.h.3.attn.c_attn.weight` -> `model.layers.3.self_attn.qkv_proj.weight`."""
    part = _PART.search(name)
    if part:
        name = name[: part.start()] + ".weight"
    expert = _EXPERT.search(name)
    if expert:
        name = name[: expert.start()] + "experts." + name[expert.end() :]
    return StoredName(
        name=_whole_name(_PREFIX.sub("model.", name), family),
        expert=int(expert[1]) if expert else None,
        part=(part[1] or part[2]) if part else None,
    )


def module_names(usual: str, family: str) -> tuple[str, ...]:
    """What a list of excluded modules may call a module: the family's name, also within towers."""
    name = _own_name(usual, family)
    within = name.replace("model.", "model.language_model.", 1)
    return name, within, f"language_model.{name}"


def _own_name(usual: str, family: str) -> str:
    for own, ours in _MODULES.get(family, {}).items():
        if usual.endswith(f".{ours}"):
            return usual.removesuffix(ours) + own
        if f".{ours}." in usual:
            return usual.replace(f".{ours}.", f".{own}.")
    return usual


def _whole_name(name: str, family: str) -> str:
    layer = _LAYER.match(name)
    if layer is None:
        module, _, kind = name.rpartition(".")
        known = module.removeprefix("model.")
        return f"{_GLOBAL[known]}.{kind}" if known in _GLOBAL else name
    return f"model.layers.{layer[1]}.{_in_layer(layer[2], family)}"


def _in_layer(name: str, family: str) -> str:
    for own, usual in _MODULES.get(family, {}).items():
        if name.startswith(f"{own}."):
            name = usual + name.removeprefix(own)
            break
    # gpt-oss and fused experts are bare parameters, without `.weight`
    if name.startswith("mlp.experts.") and not name.endswith((".weight", ".bias")):
        bias = name.endswith("_bias")
        return name.removesuffix("_bias") + (".bias" if bias else ".weight")
    return name
