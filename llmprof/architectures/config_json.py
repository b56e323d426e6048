"""A Hugging Face config.json as a ModelConfig."""

from collections.abc import Mapping
from typing import Final, Literal

from llmprof.architectures import limits
from llmprof.architectures.families import (
    FAMILIES,
    Family,
    refuse_architecture,
    refuse_window,
)
from llmprof.architectures.fields import Fields
from llmprof.architectures.rope_scaling import parse_rope
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.model import ModelConfig

_DEFAULT_NORM_EPS: Final = 1e-6
"""Of every supported family in transformers, where the configuration names none."""
_DTYPES: Final[Mapping[str, Literal["fp32", "bf16", "fp16"]]] = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
}
_FOREIGN: Final = (
    "kv_lora_rank",
    "q_lora_rank",
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "num_kv_shared_layers",
    "attn_logit_softcapping",
    "final_logit_softcapping",
)
"""Fields that no supported family has: where one is set, the model is something else."""

_LAYER_TYPES: Final = {"full_attention", "sliding_attention"}


def parse_config(data: Mapping[str, object], *, name: str, where: str | None = None) -> ModelConfig:
    """Shape of a supported decoder; `where` names the file in messages.

    `max_position_embeddings` is the context that the model states: no rotary factor multiplies it.

    Raises:
        InputError: a field is missing, malformed or absurd.
        CapabilityError: an architecture, variation or quantization that is not supported.
    """
    fields = Fields(data, where or name)
    family = _family(fields)
    _refuse_variations(fields, family)
    hidden = fields.integer("hidden_size", limits.HIDDEN)
    heads = fields.integer("num_attention_heads", limits.HEADS)
    layers = fields.integer("num_hidden_layers", limits.LAYERS)
    positions = fields.integer("max_position_embeddings", limits.POSITIONS)
    _refuse_sliding(fields, family, layers, positions)
    theta, scaling = parse_rope(fields, positions)
    bias = family.attention_bias == "flag" and fields.flag("attention_bias", default=False)
    return ModelConfig(
        name=name,
        model_type=family.model_type,
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size", limits.INTERMEDIATE),
        num_attention_heads=heads,
        num_key_value_heads=_kv_heads(fields, family, heads),
        head_dim=_head_dim(fields, family, hidden, heads),
        vocab_size=fields.integer("vocab_size", limits.VOCAB),
        max_position_embeddings=positions,
        rope_theta=theta,
        rope_scaling=scaling,
        rms_norm_eps=_norm_eps(fields),
        tie_word_embeddings=fields.flag("tie_word_embeddings", default=False),
        attention_bias=bias or family.attention_bias == "qkv",
        output_bias=bias,
        mlp_bias=family.mlp_bias_flag and fields.flag("mlp_bias", default=False),
        qk_norm=family.qk_norm,
        bos_token_id=next(iter(_token_ids(fields, "bos_token_id")), None),
        eos_token_ids=_token_ids(fields, "eos_token_id"),
        torch_dtype=_dtype(fields),
    )


def _family(fields: Fields) -> Family:
    model_type = fields.text("model_type")
    family = FAMILIES.get(model_type)
    if family is None:
        refuse_architecture(model_type, fields.where)
    classes = _names(fields, "architectures")
    if classes and family.architecture not in classes:
        refuse_architecture(", ".join(classes), fields.where)
    _refuse_quantization(fields)
    return family


def _refuse_quantization(fields: Fields) -> None:
    """Found beside the shape, or in the `text_config` of a model with several parts."""
    places = [fields]
    if fields.has("text_config"):
        places.append(fields.nested("text_config"))
    for place in places:
        for key in ("quantization_config", "compression_config"):
            if place.has(key):
                method = place.nested(key).raw("quant_method") or "unnamed"
                raise CapabilityError(
                    f"{place.where}: checkpoints quantized by '{method}' are not supported",
                    remedy="Give the unquantized checkpoint or a GGUF file",
                )


def _refuse_variations(fields: Fields, family: Family) -> None:
    for key in _FOREIGN:
        if fields.has(key) and fields.raw(key) not in (0, False):
            raise CapabilityError(
                f"{fields.where}: '{key}' is set, which is no {family.model_type} model"
            )
    if fields.has("auto_map") and fields.nested("auto_map").has("AutoModelForCausalLM"):
        raise CapabilityError(f"{fields.where}: the model runs its own code, which is refused")
    if fields.has("hidden_act") and fields.text("hidden_act") not in ("silu", "swish"):
        raise CapabilityError(
            f"{fields.where}: the activation '{fields.text('hidden_act')}' is not supported; "
            "supported: silu"
        )
    if not set(_names(fields, "layer_types")) <= _LAYER_TYPES:
        raise CapabilityError(
            f"{fields.where}: 'layer_types' names layers other than {', '.join(_LAYER_TYPES)}"
        )


def _refuse_sliding(fields: Fields, family: Family, layers: int, positions: int) -> None:
    """A window that is null, zero or negative is off, and in Qwen models unless switched on.

    In Qwen models it holds from layer `max_window_layers` upwards. A mistral configuration
    without the field is taken as full attention: every published one states it.
    """
    all_full = set(_names(fields, "layer_types")) == {"full_attention"}
    if all_full or not fields.has("sliding_window"):
        return
    window = fields.integer("sliding_window", limits.ANY_INTEGER)
    if family.window_switch:
        if not fields.flag("use_sliding_window", default=False):
            return
        key = "max_window_layers"
        if fields.has(key) and fields.integer(key, limits.ANY_INTEGER) >= layers:
            return
    if window > 0:
        refuse_window(window, positions, fields.where)


def _kv_heads(fields: Fields, family: Family, heads: int) -> int:
    """Llama 1 and 2 leave the field out where every head has its own keys and values."""
    key = "num_key_value_heads"
    if not fields.has(key) and (family.model_type == "llama" or fields.states(key)):
        return heads
    kv_heads = fields.integer(key, limits.HEADS)
    if heads % kv_heads:
        fields.wrong(key, f"expected a divisor of num_attention_heads ({heads})")
    return kv_heads


def _head_dim(fields: Fields, family: Family, hidden: int, heads: int) -> int:
    if fields.has("head_dim") or family.explicit_head_dim:
        head_dim = fields.integer("head_dim", limits.HEAD_DIM)
    elif hidden % heads:
        fields.wrong("hidden_size", f"expected a multiple of num_attention_heads ({heads})")
    else:
        head_dim = hidden // heads
    if head_dim % 2:
        raise InputError(f"{fields.where}: a head_dim of {head_dim} cannot be rotated in pairs")
    return head_dim


def _norm_eps(fields: Fields) -> float:
    if not fields.has("rms_norm_eps"):
        return _DEFAULT_NORM_EPS
    return fields.number("rms_norm_eps", limits.NORM_EPS)


def _names(fields: Fields, key: str) -> tuple[str, ...]:
    """A list of texts, or none."""
    value = fields.raw(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        fields.wrong(key, "expected a list of texts")
    return tuple(value)


def _token_ids(fields: Fields, key: str) -> tuple[int, ...]:
    """One id, a list of ids, or none."""
    value = fields.raw(key)
    if not isinstance(value, list):
        return (fields.integer(key, limits.TOKEN_ID),) if fields.has(key) else ()
    return tuple(Fields({key: one}, fields.where).integer(key, limits.TOKEN_ID) for one in value)


def _dtype(fields: Fields) -> Literal["fp32", "bf16", "fp16"] | None:
    key = "dtype" if fields.has("dtype") else "torch_dtype"
    if not fields.has(key):
        return None
    name = fields.text(key).removeprefix("torch.")
    if name not in _DTYPES:
        raise CapabilityError(
            f"{fields.where}: weights in '{name}' are not supported; "
            f"supported: {', '.join(_DTYPES)}"
        )
    return _DTYPES[name]
