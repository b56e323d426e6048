"""GGUF metadata of families with layers of their own, as the config.json that says the same.

Source: the converters and the model loader of llama.cpp. What a file leaves out because llama.cpp
knows it (the scale of the queries, the period of the windows) is what llama.cpp takes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from llmprof.architectures import limits
from llmprof.architectures.fields import Fields
from llmprof.architectures.gguf_facts import (
    end_ids,
    float_dtype,
    head_dim_of,
    norm_eps,
    per_layer,
    token_id,
    vocab_size,
)
from llmprof.architectures.gguf_header import GgufHeader
from llmprof.architectures.layer_types import FULL, SLIDING
from llmprof.errors import InputError

_DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", None: None}
_CAPS: Final = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
_EXPERTS: Final = {"expert_used_count": "num_experts_per_tok"}


@dataclass(frozen=True, slots=True)
class GgufFamily:
    """How the metadata of one architecture translates."""

    model_type: str
    numbers: Mapping[str, str] = field(default_factory=dict)
    """Key without its prefix -> field; what a file leaves out is left to the family's default."""
    required: tuple[str, ...] = ()
    """Keys that may not be left out."""
    fixed: Mapping[str, object] = field(default_factory=dict)
    """Fields that no key says."""
    layers_of_largest: int | None = None
    """The size of so many layers (Gemma's 27B) scales queries by hidden_size / heads."""


_GEMMA: Final = {"attention.sliding_window": "sliding_window", "rope.freq_base": "rope_theta"}
_FAMILIES: Final = {
    "gemma2": GgufFamily(
        "gemma2",
        _GEMMA | _CAPS,
        required=("attention.key_length",),
        layers_of_largest=46,
    ),
    "gemma3": GgufFamily(
        "gemma3_text",
        _GEMMA | _CAPS | {"rope.freq_base_swa": "rope_local_base_freq"},
        required=("attention.key_length", "attention.sliding_window", "rope.freq_base"),
        layers_of_largest=62,
    ),
    "phi3": GgufFamily(
        "phi3", {"attention.sliding_window": "sliding_window", "rope.freq_base": "rope_theta"}
    ),
    "qwen3moe": GgufFamily(
        "qwen3_moe",
        _EXPERTS
        | {
            "rope.freq_base": "rope_theta",
            "expert_count": "num_experts",
            "expert_feed_forward_length": "moe_intermediate_size",
        },
        required=(
            "attention.key_length",
            "expert_count",
            "expert_used_count",
            "expert_feed_forward_length",
        ),
        fixed={"norm_topk_prob": True, "decoder_sparse_step": 1},
    ),
}
_MIXTRAL: Final = GgufFamily(
    "mixtral",
    _EXPERTS | {"rope.freq_base": "rope_theta", "expert_count": "num_local_experts"},
    required=("expert_used_count",),
)
_ALWAYS: Final = (
    "block_count",
    "embedding_length",
    "feed_forward_length",
    "context_length",
    "attention.head_count",
    "attention.layer_norm_rms_epsilon",
)


def own_family(fields: Fields) -> GgufFamily | None:
    """Of a file whose layers are not plain ones; a llama file with experts is a Mixtral."""
    architecture = fields.text("general.architecture")
    experts = fields.raw("llama.expert_count")
    if architecture == "llama" and experts is not None and experts != 0:
        return _MIXTRAL
    return _FAMILIES.get(architecture)


def translated_config(header: GgufHeader, fields: Fields, family: GgufFamily) -> dict[str, object]:
    """The config.json of the same model, its rotary scaling apart.

    Raises:
        InputError: a key is missing or malformed.
    """
    prefix = fields.text("general.architecture")
    for key in (*_ALWAYS, *family.required):
        if not fields.has(f"{prefix}.{key}"):
            raise InputError(f"{fields.where}: the field '{prefix}.{key}' is missing")
    hidden = fields.integer(f"{prefix}.embedding_length", limits.HIDDEN)
    heads = per_layer(fields, f"{prefix}.attention.head_count", limits.HEADS)
    kv_key = f"{prefix}.attention.head_count_kv"
    layers = fields.integer(f"{prefix}.block_count", limits.LAYERS)
    head_dim = head_dim_of(fields, prefix, hidden, heads)
    config: dict[str, object] = {
        **family.fixed,
        "model_type": family.model_type,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": per_layer(
            fields, f"{prefix}.feed_forward_length", limits.INTERMEDIATE
        ),
        "num_attention_heads": heads,
        "num_key_value_heads": per_layer(fields, kv_key, limits.HEADS)
        if fields.has(kv_key)
        else heads,
        "head_dim": head_dim,
        "vocab_size": vocab_size(header, fields, prefix),
        "max_position_embeddings": fields.integer(f"{prefix}.context_length", limits.POSITIONS),
        "rms_norm_eps": norm_eps(fields, prefix),
        "tie_word_embeddings": header.find("output.weight") is None,
        "bos_token_id": token_id(fields, "bos"),
        "eos_token_id": list(end_ids(fields)),
        "torch_dtype": _DTYPES[float_dtype(header)],
    }
    for key, name in family.numbers.items():
        if fields.has(f"{prefix}.{key}"):
            config[name] = fields.raw(f"{prefix}.{key}")
    if family.layers_of_largest is not None:
        largest = layers == family.layers_of_largest
        config["query_pre_attn_scalar"] = hidden / heads if largest else head_dim
    return config | _windows(fields, prefix)


def _windows(fields: Fields, prefix: str) -> dict[str, object]:
    """Which layers slide: every n-th one does not, or a truth value for each layer."""
    stated = fields.raw(f"{prefix}.attention.sliding_window_pattern")
    if stated is None:
        return {}
    if isinstance(stated, tuple):
        return {"layer_types": [SLIDING if one else FULL for one in stated]}
    return {"sliding_window_pattern": stated}
