"""Rotary settings of a Hugging Face config.json, in every spelling in use.

`rope_scaling` with `type` or `rope_type` beside a top-level `rope_theta`, and the newer
`rope_parameters` that holds all three. Source: transformers, modeling_rope_utils.py.
"""

from typing import Final

from llmprof.architectures import limits
from llmprof.architectures.fields import Fields
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.model import RopeScaling

_FULL: Final = "full_attention"
_DEFAULT_THETA: Final = 10_000.0
"""What transformers takes where the configuration names none."""


def parse_rope(fields: Fields, max_positions: int) -> tuple[float, RopeScaling | None]:
    """Base of the frequencies, and how they are scaled (None: not at all).

    Raises:
        InputError: a missing or malformed field.
        CapabilityError: a kind of scaling that is not supported.
    """
    scaling = _scaling_fields(fields)
    theta = fields
    if scaling is not None and scaling.has("rope_theta"):
        theta = scaling
    base = _DEFAULT_THETA
    if theta.has("rope_theta"):
        base = theta.number("rope_theta", limits.ROPE_THETA)
    if scaling is None:
        return base, None
    return base, _parse_scaling(fields, scaling, max_positions)


def _scaling_fields(fields: Fields) -> Fields | None:
    """Where layers in full and within a window rotate differently: those of the layers in full."""
    for key in ("rope_parameters", "rope_scaling"):
        if fields.has(key):
            found = fields.nested(key)
            return found.nested(_FULL) if found.has(_FULL) else found
    return None


def _parse_scaling(fields: Fields, scaling: Fields, max_positions: int) -> RopeScaling | None:
    if not any(scaling.has(key) for key in ("rope_type", "type", "factor")):
        return None
    kind = scaling.text("rope_type" if scaling.has("rope_type") else "type")
    if kind in ("default", "proportional"):  # proportional: a part of each head, not stretched
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=_factor(scaling))
    if kind == "llama3":
        return _llama3(scaling)
    if kind == "yarn":
        return _yarn(scaling, max_positions)
    if kind == "dynamic":
        return RopeScaling(kind="dynamic", factor=_factor(scaling))
    if kind in ("longrope", "su"):
        return _longrope(fields, scaling, max_positions)
    raise CapabilityError(
        f"{scaling.where}: rotary scaling '{kind}' is not supported; "
        "supported: default, linear, dynamic, llama3, longrope, yarn"
    )


def _factor(scaling: Fields) -> float:
    return scaling.number("factor", limits.SCALING_FACTOR)


def _llama3(scaling: Fields) -> RopeScaling:
    low = scaling.number("low_freq_factor", limits.POSITIVE)
    high = scaling.number("high_freq_factor", limits.POSITIVE)
    if low >= high:
        scaling.wrong("high_freq_factor", f"expected more than low_freq_factor ({low:g})")
    return RopeScaling(
        kind="llama3",
        factor=_factor(scaling),
        original_max_position_embeddings=_original_positions(scaling),
        low_freq_factor=low,
        high_freq_factor=high,
    )


def _yarn(scaling: Fields, max_positions: int) -> RopeScaling:
    """Without an original context, transformers takes max_position_embeddings for it."""
    stated = scaling.has("original_max_position_embeddings")
    return RopeScaling(
        kind="yarn",
        factor=_factor(scaling),
        original_max_position_embeddings=_original_positions(scaling) if stated else max_positions,
        beta_fast=_optional(scaling, "beta_fast") or 32.0,
        beta_slow=_optional(scaling, "beta_slow") or 1.0,
        attention_factor=_optional(scaling, "attention_factor"),
        mscale=_optional(scaling, "mscale"),
        mscale_all_dim=_optional(scaling, "mscale_all_dim"),
        truncate=scaling.flag("truncate", default=True),
    )


def _longrope(fields: Fields, scaling: Fields, max_positions: int) -> RopeScaling:
    """Phi-3: factors per frequency, and the original context beside or within the scaling."""
    key = "original_max_position_embeddings"
    original = _original_positions(fields if fields.has(key) else scaling)
    if original > max_positions:
        raise InputError(f"{scaling.where}: '{key}' is more than max_position_embeddings")
    return RopeScaling(
        kind="longrope",
        factor=max_positions / original,
        original_max_position_embeddings=original,
        attention_factor=_optional(scaling, "attention_factor"),
        short_factors=_factors(scaling, "short_factor"),
        long_factors=_factors(scaling, "long_factor"),
    )


def _factors(scaling: Fields, key: str) -> tuple[float, ...]:
    """One for each frequency; none where the configuration has none."""
    value = scaling.raw(key)
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > limits.HEAD_DIM.high:
        scaling.wrong(key, "expected a list with a number for each pair of channels")
    return tuple(Fields({key: one}, scaling.where).number(key, limits.POSITIVE) for one in value)


def _original_positions(scaling: Fields) -> int:
    return scaling.integer("original_max_position_embeddings", limits.POSITIONS)


def _optional(scaling: Fields, key: str) -> float | None:
    return scaling.number(key, limits.POSITIVE) if scaling.has(key) else None
