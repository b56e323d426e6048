"""A Hugging Face config.json as a ModelConfig."""

from collections.abc import Mapping
from typing import Final, Literal

from llmprof.architectures import limits
from llmprof.architectures.attention_shapes import Basics, attention_shapes, head_dim, kv_heads
from llmprof.architectures.families import Family, find_family, refuse_architecture
from llmprof.architectures.fields import Fields
from llmprof.architectures.mlp_shapes import mlp_shapes
from llmprof.architectures.norm_names import norm_names
from llmprof.architectures.numerics import parse_numerics
from llmprof.architectures.quantization_config import parse_quantization
from llmprof.architectures.rope_scaling import parse_rope
from llmprof.architectures.vision import parse_vision
from llmprof.errors import CapabilityError
from llmprof.schema.layers import DenseMlp, LayerShape
from llmprof.schema.model import ModelConfig

_DEFAULT_NORM_EPS: Final = 1e-6
"""Of most supported families in transformers, where the configuration names none."""
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
"""Fields that no plain family has: where one is set, the model is something else."""


def parse_config(data: Mapping[str, object], *, name: str, where: str | None = None) -> ModelConfig:
    """Shape of a supported decoder; `where` names the file in messages.

    Of a model with towers it is the decoder in `text_config`. `max_position_embeddings` is the
    context that the model states: no rotary factor multiplies it.

    Raises:
        InputError: a field is missing, malformed or absurd.
        CapabilityError: an architecture, variation or quantization that is not supported.
    """
    whole = Fields(data, where or name)
    family, fields = _decoder(whole)
    _refuse_variations(fields, family)
    basics = _basics(fields, family)
    dense = _dense_mlp(fields, basics)
    kinds, pattern = _kinds(_layers(fields, basics, dense))
    theta, scaling = parse_rope(fields, basics.positions)
    return ModelConfig(
        name=name,
        model_type=fields.text("model_type"),
        num_hidden_layers=basics.layers,
        hidden_size=basics.hidden,
        intermediate_size=dense.intermediate_size,
        num_attention_heads=basics.heads,
        num_key_value_heads=basics.kv_heads,
        head_dim=basics.head_dim,
        vocab_size=fields.integer("vocab_size", limits.VOCAB),
        max_position_embeddings=basics.positions,
        rope_theta=theta,
        rope_scaling=scaling,
        rms_norm_eps=_norm_eps(fields),
        tie_word_embeddings=_tied(whole, fields, family),
        attention_bias=basics.qkv_bias,
        output_bias=basics.output_bias,
        mlp_bias=dense.bias,
        qk_norm=family.qk_norm,
        bos_token_id=next(iter(_token_ids(fields, "bos_token_id")), None),
        eos_token_ids=_token_ids(fields, "eos_token_id"),
        torch_dtype=_dtype(whole, fields),
        layer_kinds=() if _is_plain(family, kinds) else kinds,
        layer_pattern=() if _is_plain(family, kinds) else pattern,
        norm_bias=not family.gated,
        learned_positions=basics.positions if family.model_type == "gpt2" else 0,
        per_layer_input_size=_per_layer(fields, family, "hidden_size_per_layer_input"),
        per_layer_vocab_size=_per_layer(fields, family, "vocab_size_per_layer_input"),
        mtp_layers=_mtp_layers(fields, family),
        vision=parse_vision(whole, basics.hidden),
        quantization=parse_quantization(whole),
        **parse_numerics(fields, family, basics.hidden),
    )


def _decoder(whole: Fields) -> tuple[Family, Fields]:
    """The family, and the fields of its decoder under the usual names, defaults filled in."""
    model_type = whole.text("model_type")
    family = find_family(model_type, whole.where)
    classes = _names(whole, "architectures")
    if classes and not set(classes) & set(family.architectures):
        refuse_architecture(", ".join(classes), whole.where)
    part = whole.nested("text_config") if whole.has("text_config") else whole
    if part is not whole and not family.text_part:
        raise CapabilityError(
            f"{whole.where}: a 'text_config' beside a {model_type} decoder is not supported"
        )
    if part.has("model_type"):
        family = find_family(part.text("model_type"), part.where)
    return family, part.under_usual_names(family.renamed, family.defaults, model_type)


def _basics(fields: Fields, family: Family) -> Basics:
    hidden = fields.integer("hidden_size", limits.HIDDEN)
    heads = fields.integer("num_attention_heads", limits.HEADS)
    everywhere = family.model_type == "gpt2" or (
        family.model_type == "falcon" and fields.flag("bias", default=False)
    )
    bias = everywhere or (
        family.attention_bias == "flag" and fields.flag("attention_bias", default=False)
    )
    of_heads = family.attention_bias == "qkv" or (
        family.attention_bias == "qkv_flag" and fields.flag("attention_bias", default=False)
    )
    return Basics(
        family=family,
        layers=fields.integer("num_hidden_layers", limits.LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads(fields, family, heads),
        head_dim=head_dim(fields, family, hidden, heads),
        positions=fields.integer("max_position_embeddings", limits.POSITIONS),
        qkv_bias=bias or of_heads,
        output_bias=bias,
    )


def _dense_mlp(fields: Fields, basics: Basics) -> DenseMlp:
    """GPT-2 and Falcon are four times as wide as the hidden size unless they say otherwise."""
    family = basics.family
    key = "intermediate_size"
    if not fields.has(key) and not family.gated:
        inner = 4 * basics.hidden
    elif not fields.has(key) and family.mlp == "qwen":
        inner = fields.integer("moe_intermediate_size", limits.INTERMEDIATE)
    else:
        inner = fields.integer(key, limits.INTERMEDIATE)
    bias = family.mlp_bias_flag and fields.flag("mlp_bias", default=False)
    return DenseMlp(
        intermediate_size=inner,
        gated=family.gated,
        bias=bias or (not family.gated and basics.output_bias),
        fused=(family.fused or family.fused_gate_up) and family.gated,
    )


def _layers(fields: Fields, basics: Basics, dense: DenseMlp) -> list[LayerShape]:
    attention = attention_shapes(fields, basics)
    mlps = mlp_shapes(fields, basics, dense, attention)
    norms = norm_names(fields, basics.family)
    return [
        LayerShape(attention=one, mlp=mlp, norms=norms)
        for one, mlp in zip(attention, mlps, strict=True)
    ]


def _kinds(layers: list[LayerShape]) -> tuple[tuple[LayerShape, ...], tuple[int, ...]]:
    """The different layers, and for each layer which of them it is."""
    kinds: list[LayerShape] = []
    pattern = []
    for layer in layers:
        if layer not in kinds:
            kinds.append(layer)
        pattern.append(kinds.index(layer))
    return tuple(kinds), tuple(pattern)


def _is_plain(family: Family, kinds: tuple[LayerShape, ...]) -> bool:
    """The flat fields say it all."""
    windows = [kind.attention.window for kind in kinds if kind.attention.kind == "softmax"]
    return family.plain and not any(windows)


def _refuse_variations(fields: Fields, family: Family) -> None:
    for key in _FOREIGN if family.plain else ():
        if fields.has(key) and fields.raw(key) not in (0, False):
            raise CapabilityError(
                f"{fields.where}: '{key}' is set, which is no {family.model_type} model"
            )
    if family.plain:
        _refuse_partial_rotation(fields)
    own_code = fields.has("auto_map") and fields.nested("auto_map").has("AutoModelForCausalLM")
    if own_code and not family.own_code:
        raise CapabilityError(f"{fields.where}: the model runs its own code, which is refused")
    for key in ("hidden_act", "hidden_activation"):
        if fields.has(key) and fields.text(key) not in family.activations:
            raise CapabilityError(
                f"{fields.where}: the activation '{fields.text(key)}' is not supported; "
                f"supported: {family.activations[0]}"
            )
    if fields.raw("use_bidirectional_attention") in (True, "all"):
        raise CapabilityError(f"{fields.where}: attention in both directions is not supported")
    if fields.raw("per_layer_config"):
        raise CapabilityError(
            f"{fields.where}: layers with settings of their own (per_layer_config) are not supported"
        )
    if fields.has("alibi") and fields.flag("alibi", default=False):
        raise CapabilityError(f"{fields.where}: positions by ALiBi are not supported")


def _refuse_partial_rotation(fields: Fields) -> None:
    key = "partial_rotary_factor"
    nested = ("rope_parameters", "rope_scaling")
    places = [fields, *(fields.nested(name) for name in nested if fields.has(name))]
    for place in places:
        if place.has(key) and place.number(key, limits.POSITIVE) != 1.0:
            raise CapabilityError(
                f"{place.where}: rotation of a part of each head ({key} {place.raw(key)}) "
                "is not supported"
            )


def _tied(whole: Fields, fields: Fields, family: Family) -> bool:
    """Stated by the decoder or by the whole, else what the family does."""
    place = fields if fields.has("tie_word_embeddings") else whole
    return place.flag("tie_word_embeddings", default=family.tied)


def _per_layer(fields: Fields, family: Family, key: str) -> int:
    """Gemma 4's second embedding table; zero channels: there is none."""
    if family.attention != "gemma4" or fields.raw("hidden_size_per_layer_input") == 0:
        return 0
    return fields.integer(key, limits.VOCAB)


def _mtp_layers(fields: Fields, family: Family) -> int:
    for key in ("num_nextn_predict_layers", "mtp_num_hidden_layers"):
        if fields.has(key):
            return fields.integer(key, limits.Limits(0, limits.LAYERS.high))
    return family.published_mtp_layers


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


def _dtype(whole: Fields, fields: Fields) -> Literal["fp32", "bf16", "fp16"] | None:
    places = [(place, key) for place in (fields, whole) for key in ("dtype", "torch_dtype")]
    stated = next(((place, key) for place, key in places if place.has(key)), None)
    if stated is None:
        return None
    place, key = stated
    name = place.text(key).removeprefix("torch.")
    if name not in _DTYPES:
        raise CapabilityError(
            f"{place.where}: weights in '{name}' are not supported; supported: {', '.join(_DTYPES)}"
        )
    return _DTYPES[name]
