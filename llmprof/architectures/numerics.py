"""What a family computes apart from its shapes: activations, scales and caps.

Source: the configuration and modeling files of Hugging Face transformers.
"""

import math
from typing import Final, Literal, TypedDict

from llmprof.architectures import limits
from llmprof.architectures.families import Family
from llmprof.architectures.fields import Fields

_GEMMA: Final = ("gemma2", "gemma3")
_QUERY_SCALAR: Final = 256.0
_CAPS: Final = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
"""Of Gemma 2, where the configuration leaves the field out; null is off."""
_WINDOW_ROPE_THETA: Final = 10_000.0

Activation = Literal["silu", "gelu_tanh", "gelu"]
_ACTIVATIONS: Final[dict[str, Activation]] = {
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu": "gelu",
}


class Numerics(TypedDict, total=False):
    """Fields of a ModelConfig."""

    activation: Activation
    norm_gain_offset: float
    embedding_scale: float
    query_scale: float
    score_cap: float | None
    logit_cap: float | None
    window_rope_theta: float
    rotary_share: float


def parse_numerics(fields: Fields, family: Family, hidden: int) -> Numerics:
    """What differs from a plain decoder.

    Raises:
        InputError: a malformed field.
    """
    found: Numerics = {"activation": _activation(fields, family)}
    if family.rotary_share is not None:
        found["rotary_share"] = _rotary_share(fields, family.rotary_share)
    if family.model_type not in _GEMMA:
        return found
    scalar = _number(fields, "query_pre_attn_scalar", _QUERY_SCALAR)
    found["norm_gain_offset"] = 1.0
    found["embedding_scale"] = math.sqrt(hidden)
    found["query_scale"] = 1 / math.sqrt(scalar)
    for key, name in (
        ("attn_logit_softcapping", "score_cap"),
        ("final_logit_softcapping", "logit_cap"),
    ):
        found[name] = _cap(fields, family, key)  # type: ignore[literal-required]
    if family.model_type == "gemma3":
        found["window_rope_theta"] = _window_theta(fields)
    return found


def _activation(fields: Fields, family: Family) -> Activation:
    """Gemma names it `hidden_activation`, and a `hidden_act` beside it means nothing."""
    default = family.activations[0]
    for key in ("hidden_activation", "hidden_act"):
        if key == "hidden_act" and family.model_type == "gemma2":
            break
        if fields.has(key):
            return _ACTIVATIONS.get(fields.text(key), "silu")
    return _ACTIVATIONS.get(default, "silu")


def _cap(fields: Fields, family: Family, key: str) -> float | None:
    if fields.states(key) or family.model_type != "gemma2":
        return fields.number(key, limits.POSITIVE) if fields.has(key) else None
    return _CAPS[key]


def _rotary_share(fields: Fields, default: float) -> float:
    key = "partial_rotary_factor"
    nested = [fields.nested(k) for k in ("rope_parameters", "rope_scaling") if fields.has(k)]
    place = next((one for one in (fields, *nested) if one.has(key)), None)
    return default if place is None else place.number(key, limits.SHARE)


def _window_theta(fields: Fields) -> float:
    """Stated beside the other base, or under the kind of layer in newer configurations."""
    if fields.has("rope_parameters"):
        by_kind = fields.nested("rope_parameters")
        if by_kind.has("sliding_attention"):
            return by_kind.nested("sliding_attention").number("rope_theta", limits.ROPE_THETA)
    key = "rope_local_base_freq"
    return fields.number(key, limits.ROPE_THETA) if fields.has(key) else _WINDOW_ROPE_THETA


def _number(fields: Fields, key: str, default: float) -> float:
    return fields.number(key, limits.POSITIVE) if fields.has(key) else default
