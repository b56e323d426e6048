"""What a GGUF header says of every family alike."""

from typing import Literal

from llmprof.architectures import limits
from llmprof.architectures.fields import Fields
from llmprof.architectures.gguf_header import GgufHeader
from llmprof.architectures.gguf_names import gguf_name
from llmprof.architectures.limits import Limits
from llmprof.architectures.manifest import EMBEDDING
from llmprof.errors import CapabilityError, InputError


def per_layer(fields: Fields, key: str, allowed: Limits) -> int:
    """A number that may also be stored once per layer; layers that differ are refused."""
    value = fields.raw(key)
    if not isinstance(value, tuple) or not value:
        return fields.integer(key, allowed)
    if len(set(value)) > 1:
        raise CapabilityError(f"{fields.where}: '{key}' differs from layer to layer")
    return Fields({key: value[0]}, fields.where).integer(key, allowed)


def head_dim_of(fields: Fields, prefix: str, hidden: int, heads: int) -> int:
    key, value_key = f"{prefix}.attention.key_length", f"{prefix}.attention.value_length"
    if fields.has(key):
        head_dim = fields.integer(key, limits.HEAD_DIM)
    elif hidden % heads:
        raise InputError(
            f"{fields.where}: the field '{key}' is missing, "
            f"and {hidden} channels do not divide into {heads} heads"
        )
    else:
        head_dim = hidden // heads
    if fields.has(value_key) and fields.integer(value_key, limits.HEAD_DIM) != head_dim:
        raise CapabilityError(f"{fields.where}: keys and values of different length")
    _refuse_partial_rotation(fields, f"{prefix}.rope.dimension_count", head_dim)
    return head_dim


def _refuse_partial_rotation(fields: Fields, key: str, head_dim: int) -> None:
    if head_dim % 2:
        raise InputError(f"{fields.where}: a head_dim of {head_dim} cannot be rotated in pairs")
    if fields.has(key) and fields.integer(key, limits.HEAD_DIM) != head_dim:
        raise CapabilityError(
            f"{fields.where}: rotation of {fields.raw(key)} of {head_dim} dimensions "
            "is not supported"
        )


def vocab_size(header: GgufHeader, fields: Fields, prefix: str) -> int:
    """Rows of the embedding; what the metadata says must agree."""
    embedding = header.find(gguf_name(EMBEDDING))
    if embedding is None or len(embedding.shape) != 2:
        raise InputError(f"{fields.where}: tensor 'token_embd.weight' is missing or has no rows")
    rows = embedding.shape[0]
    key = f"{prefix}.vocab_size"
    if fields.has(key) and fields.integer(key, limits.VOCAB) != rows:
        fields.wrong(key, f"but the embedding has {rows} rows")
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, tuple) and len(tokens) > rows:
        raise InputError(f"{fields.where}: {len(tokens)} tokens, but the embedding has {rows} rows")
    return Fields({key: rows}, fields.where).integer(key, limits.VOCAB)


def rope_theta(fields: Fields, prefix: str) -> float:
    key = f"{prefix}.rope.freq_base"
    return fields.number(key, limits.ROPE_THETA) if fields.has(key) else 10_000.0


def norm_eps(fields: Fields, prefix: str) -> float:
    """GGUF keeps a 32-bit float: seven digits give back the number that the checkpoint states."""
    value = fields.number(f"{prefix}.attention.layer_norm_rms_epsilon", limits.NORM_EPS)
    return float(f"{value:.7g}")


def token_id(fields: Fields, role: str) -> int | None:
    key = f"tokenizer.ggml.{role}_token_id"
    return fields.integer(key, limits.TOKEN_ID) if fields.has(key) else None


def end_ids(fields: Fields) -> tuple[int, ...]:
    """End of sequence, then end of turn where it is another token."""
    found = (token_id(fields, role) for role in ("eos", "eot"))
    return tuple(dict.fromkeys(token for token in found if token is not None))


def float_dtype(header: GgufHeader) -> Literal["fp32", "bf16", "fp16"] | None:
    """The one float dtype of all matrices; None where they are packed or mixed."""
    stored = {tensor.type.stored_dtype for tensor in header.tensors if len(tensor.shape) > 1}
    for dtype in ("fp32", "bf16", "fp16"):
        if stored == {dtype}:
            return dtype
    return None
