"""How a GGUF file says that its rotary frequencies are scaled.

Source: llama.cpp: the keys `rope.scaling.*`, and the tensor `rope_freqs.weight`, by whose values
the frequencies are divided (written by the converter of Llama 3.1 and later).
"""

import math
import struct
from typing import Final

from llmprof.architectures import limits
from llmprof.architectures.fields import Fields
from llmprof.architectures.gguf_header import GgufHeader, GgufTensor
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.model import RopeScaling

ROPE_FACTORS: Final = "rope_freqs.weight"
LONG_FACTORS: Final = "rope_factors_long.weight"
SHORT_FACTORS: Final = "rope_factors_short.weight"
"""By these the frequencies of long and of short sequences are divided (Phi-3)."""

_LLAMA3_LOW: Final = 1.0
_LLAMA3_HIGH: Final = 4.0
_LLAMA3_CONTEXT: Final = 8_192
"""The same in every published Llama 3.1, 3.2 and 3.3; the factor alone differs (8 or 32)."""
_TOLERANCE: Final = 1e-4


def scaling_from_header(
    header: GgufHeader, fields: Fields, prefix: str, head_dim: int
) -> RopeScaling | None:
    """Scaling by metadata or by the factor tensor; None where the frequencies are plain.

    Raises:
        CapabilityError: a scaling that cannot be told from the file or is not supported.
        InputError: a malformed field or factor tensor.
    """
    if header.find(LONG_FACTORS) or header.find(SHORT_FACTORS):
        return _longrope(header, fields, prefix, head_dim)
    stated = _stated_scaling(fields, prefix)
    tensor = header.find(ROPE_FACTORS)
    if tensor is None:
        return stated
    if stated is not None:
        raise CapabilityError(
            f"{fields.where}: rotary scaling both by '{ROPE_FACTORS}' and by metadata"
        )
    theta_key = f"{prefix}.rope.freq_base"
    theta = fields.number(theta_key, limits.ROPE_THETA) if fields.has(theta_key) else 10_000.0
    return _derived_scaling(_factors(header, tensor, head_dim), theta, fields.where)


def llama3_factors(
    head_dim: int, theta: float, *, factor: float, low: float, high: float, context: int
) -> list[float]:
    """Divisor of each of the head_dim / 2 rotary frequencies under Llama 3 scaling.

    Wavelengths above context / low are stretched by `factor`, those below context / high are kept,
    and the inverse of the divisor is interpolated between them (transformers,
    `_compute_llama3_parameters`).
    """
    divisors = []
    for index in range(head_dim // 2):
        wavelength = 2 * math.pi * theta ** (2 * index / head_dim)
        kept = (context / wavelength - low) / (high - low)
        kept = min(max(kept, 0.0), 1.0)
        divisors.append(1 / ((1 - kept) / factor + kept))
    return divisors


def _stated_scaling(fields: Fields, prefix: str) -> RopeScaling | None:
    key = f"{prefix}.rope.scaling.type"
    kind = fields.text(key) if fields.has(key) else _old_kind(fields, prefix)
    if kind == "none":
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=_factor(fields, prefix))
    if kind == "yarn":
        return _yarn(fields, prefix)
    raise CapabilityError(
        f"{fields.where}: rotary scaling '{kind}' is not supported; supported: linear, yarn"
    )


def _old_kind(fields: Fields, prefix: str) -> str:
    """Before `rope.scaling.type`, a factor alone meant linear scaling."""
    return "linear" if fields.has(f"{prefix}.rope.scale_linear") else "none"


def _factor(fields: Fields, prefix: str) -> float:
    old = f"{prefix}.rope.scale_linear"
    key = old if fields.has(old) else f"{prefix}.rope.scaling.factor"
    return fields.number(key, limits.SCALING_FACTOR)


def _yarn(fields: Fields, prefix: str) -> RopeScaling:
    """llama.cpp multiplies YaRN's own attention factor, 1 + 0.1 ln(factor), by `attn_factor`."""
    scaling = f"{prefix}.rope.scaling"
    factor = _factor(fields, prefix)
    context_key = f"{scaling}.original_context_length"
    if not fields.has(context_key):
        context_key = f"{prefix}.context_length"
    extra = _number_or(fields, f"{scaling}.attn_factor", 1.0)
    return RopeScaling(
        kind="yarn",
        factor=factor,
        original_max_position_embeddings=fields.integer(context_key, limits.POSITIONS),
        beta_fast=_number_or(fields, f"{scaling}.yarn_beta_fast", 32.0),
        beta_slow=_number_or(fields, f"{scaling}.yarn_beta_slow", 1.0),
        attention_factor=None if extra == 1.0 else extra * (1 + 0.1 * math.log(factor)),
    )


def _longrope(header: GgufHeader, fields: Fields, prefix: str, head_dim: int) -> RopeScaling:
    """LongRoPE (Ding et al. 2024): a factor per frequency, for sequences within and beyond."""
    long, short = header.find(LONG_FACTORS), header.find(SHORT_FACTORS)
    if long is None or short is None:
        raise InputError(f"{fields.where}: only one of '{LONG_FACTORS}' and '{SHORT_FACTORS}'")
    positions = fields.integer(f"{prefix}.context_length", limits.POSITIONS)
    key = f"{prefix}.rope.scaling.original_context_length"
    original = fields.integer(key, limits.POSITIONS)
    if original > positions:
        fields.wrong(key, f"expected at most the {positions} positions of the context")
    factor_key = f"{prefix}.rope.scaling.attn_factor"
    stated = fields.has(factor_key)
    return RopeScaling(
        kind="longrope",
        factor=positions / original,
        original_max_position_embeddings=original,
        attention_factor=fields.number(factor_key, limits.POSITIVE) if stated else None,
        short_factors=_positive(_factors(header, short, head_dim), short, fields.where),
        long_factors=_positive(_factors(header, long, head_dim), long, fields.where),
    )


def _positive(factors: tuple[float, ...], tensor: GgufTensor, where: str) -> tuple[float, ...]:
    if not all(0 < one < math.inf for one in factors):
        raise InputError(f"{where}: '{tensor.name}' holds numbers that cannot divide a frequency")
    return factors


def _number_or(fields: Fields, key: str, default: float) -> float:
    return fields.number(key, limits.POSITIVE) if fields.has(key) else default


def _factors(header: GgufHeader, tensor: GgufTensor, head_dim: int) -> tuple[float, ...]:
    if tensor.type.name != "F32" or tensor.shape != (head_dim // 2,):
        raise InputError(
            f"{header.path}: '{tensor.name}' is {tensor.type.name} {list(tensor.shape)}, "
            f"expected F32 [{head_dim // 2}]"
        )
    try:
        with header.path.open("rb") as file:
            file.seek(tensor.offset)
            stored = file.read(tensor.stored_bytes)
    except OSError as error:
        raise InputError(f"cannot read {header.path}: {error.strerror or error}") from error
    if len(stored) != tensor.stored_bytes:
        raise InputError(f"{header.path}: '{tensor.name}' is truncated")
    return struct.unpack(f"<{head_dim // 2}f", stored)


def _derived_scaling(factors: tuple[float, ...], theta: float, where: str) -> RopeScaling | None:
    """The Llama 3 parameters that give exactly these factors; None where all of them are 1."""
    factor = max(factors)
    if all(value == 1 for value in factors):
        return None
    if math.isfinite(factor) and factor > 1:
        expected = llama3_factors(
            2 * len(factors),
            theta,
            factor=factor,
            low=_LLAMA3_LOW,
            high=_LLAMA3_HIGH,
            context=_LLAMA3_CONTEXT,
        )
        if all(
            math.isclose(value, wanted, rel_tol=_TOLERANCE)
            for value, wanted in zip(factors, expected, strict=True)
        ):
            return RopeScaling(
                kind="llama3",
                factor=factor,
                original_max_position_embeddings=_LLAMA3_CONTEXT,
                low_freq_factor=_LLAMA3_LOW,
                high_freq_factor=_LLAMA3_HIGH,
            )
    raise CapabilityError(
        f"{where}: '{ROPE_FACTORS}' does not hold the factors of Llama 3 rotary scaling"
    )
