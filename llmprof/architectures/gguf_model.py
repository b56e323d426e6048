"""A GGUF header as a model: its shape, and its tensors under their Hugging Face names."""

from collections.abc import Mapping
from typing import Final, Literal

from llmprof.architectures import limits
from llmprof.architectures.families import FAMILIES, Family, refuse_architecture
from llmprof.architectures.fields import Fields
from llmprof.architectures.gguf_header import GgufHeader, GgufTensor
from llmprof.architectures.gguf_names import gguf_name, hf_name
from llmprof.architectures.gguf_rope import ROPE_FACTORS, scaling_from_header
from llmprof.architectures.limits import Limits
from llmprof.architectures.manifest import EMBEDDING, checked_manifest
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.model import ModelConfig, TensorSpec, WeightManifest

_GGUF_FAMILIES: Final = ("llama", "qwen2", "qwen3")
"""Values of general.architecture; Mistral files say llama."""

_NEUTRAL: Final[Mapping[str, tuple[object, ...]]] = {
    "expert_count": (0,),
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.scale": (0.0,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "embedding_scale": (0.0, 1.0),
    "logit_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "rope.scaling.yarn_attn_factor": (1.0,),
    "rope.scaling.yarn_ext_factor": (1.0,),
    "rope.scaling.yarn_log_multiplier": (0.0,),
    "use_parallel_residual": (False,),
}
"""Keys that change what is computed, with the values that change nothing."""


def config_from_header(header: GgufHeader, *, name: str) -> ModelConfig:
    """Shape of the model from metadata and tensor shapes.

    Raises:
        InputError: a field is missing, malformed or contradicts another.
        CapabilityError: an architecture or variation that the engine does not compute.
    """
    fields = Fields(header.metadata, str(header.path))
    _refuse_shard(fields)
    family = _family(fields)
    prefix = fields.text("general.architecture")
    _refuse_variations(fields, prefix)
    hidden = fields.integer(f"{prefix}.embedding_length", limits.HIDDEN)
    heads = _per_layer(fields, f"{prefix}.attention.head_count", limits.HEADS)
    kv_key = f"{prefix}.attention.head_count_kv"
    kv_heads = _per_layer(fields, kv_key, limits.HEADS) if fields.has(kv_key) else heads
    if heads % kv_heads:
        fields.wrong(kv_key, f"expected a divisor of the {heads} attention heads")
    head_dim = _head_dim(fields, prefix, hidden, heads)
    positions = fields.integer(f"{prefix}.context_length", limits.POSITIONS)
    plain = ModelConfig(
        name=name,
        model_type=family.model_type,
        num_hidden_layers=fields.integer(f"{prefix}.block_count", limits.LAYERS),
        hidden_size=hidden,
        intermediate_size=_per_layer(fields, f"{prefix}.feed_forward_length", limits.INTERMEDIATE),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=_vocab_size(header, fields, prefix),
        max_position_embeddings=positions,
        rope_theta=_rope_theta(fields, prefix),
        rope_scaling=scaling_from_header(header, fields, prefix, head_dim),
        rms_norm_eps=_norm_eps(fields, prefix),
        tie_word_embeddings=header.find("output.weight") is None,
        attention_bias=family.attention_bias == "qkv" or _has_bias(header, "attn_q"),
        output_bias=_has_bias(header, "attn_output"),
        mlp_bias=_has_bias(header, "ffn_gate"),
        qk_norm=family.qk_norm,
        bos_token_id=_token_id(fields, "bos"),
        eos_token_ids=_end_ids(fields),
        torch_dtype=_float_dtype(header),
    )
    return _within_window(plain, _window(fields, prefix))


def _within_window(plain: ModelConfig, window: int) -> ModelConfig:
    """Every layer sees a window of so many tokens; 0, or as many as the context: all of it."""
    if not 0 < window < plain.max_position_embeddings:
        return plain
    (layer, layers), *_ = plain.kinds
    attention = layer.attention.model_copy(update={"window": window})
    kind = layer.model_copy(update={"attention": attention})
    update = {"layer_kinds": (kind,), "layer_pattern": (0,) * layers}
    return plain.model_copy(update=update)


def manifest_from_header(header: GgufHeader, config: ModelConfig) -> WeightManifest:
    """The file's tensors, checked one by one against the shape of the model.

    Raises:
        InputError: a tensor is missing, surplus or of another shape.
        CapabilityError: a tensor that the family does not have.
    """
    try:
        found = [_spec(tensor) for tensor in header.tensors if tensor.name != ROPE_FACTORS]
    except CapabilityError as error:
        raise CapabilityError(f"{header.path}: {error.message}") from error
    return checked_manifest(
        config, found, origin="gguf", where=str(header.path), file_name=gguf_name
    )


def _spec(tensor: GgufTensor) -> TensorSpec:
    return TensorSpec(
        name=hf_name(tensor.name),
        shape=tensor.shape,
        stored_dtype=tensor.type.stored_dtype,
        stored_bytes=tensor.stored_bytes,
    )


def _family(fields: Fields) -> Family:
    architecture = fields.text("general.architecture")
    if architecture not in _GGUF_FAMILIES:
        refuse_architecture(architecture, fields.where)
    return FAMILIES[architecture]


def _refuse_shard(fields: Fields) -> None:
    """One file of several holds a part of the tensors: no total can be told from it."""
    if fields.has("split.count") and fields.integer("split.count", limits.ANY_INTEGER) > 1:
        number = fields.integer("split.no", limits.ANY_INTEGER) + 1 if fields.has("split.no") else 1
        raise InputError(
            f"{fields.where} is incomplete: shard {number} of {fields.raw('split.count')}",
            remedy="Join the shards into one file (llama-gguf-split --merge)",
        )


def _refuse_variations(fields: Fields, prefix: str) -> None:
    for key, neutral in _NEUTRAL.items():
        name = f"{prefix}.{key}"
        if fields.has(name) and fields.raw(name) not in neutral:
            raise CapabilityError(
                f"{fields.where}: '{name}' is {fields.raw(name)!r}, "
                f"a variation of {prefix} that is not supported"
            )


def _per_layer(fields: Fields, key: str, allowed: Limits) -> int:
    """A number that may also be stored once per layer; layers that differ are refused."""
    value = fields.raw(key)
    if not isinstance(value, tuple) or not value:
        return fields.integer(key, allowed)
    if len(set(value)) > 1:
        raise CapabilityError(f"{fields.where}: '{key}' differs from layer to layer")
    return Fields({key: value[0]}, fields.where).integer(key, allowed)


def _head_dim(fields: Fields, prefix: str, hidden: int, heads: int) -> int:
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


def _vocab_size(header: GgufHeader, fields: Fields, prefix: str) -> int:
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


def _rope_theta(fields: Fields, prefix: str) -> float:
    key = f"{prefix}.rope.freq_base"
    return fields.number(key, limits.ROPE_THETA) if fields.has(key) else 10_000.0


def _norm_eps(fields: Fields, prefix: str) -> float:
    """GGUF keeps a 32-bit float: seven digits give back the number that the checkpoint states."""
    value = fields.number(f"{prefix}.attention.layer_norm_rms_epsilon", limits.NORM_EPS)
    return float(f"{value:.7g}")


def _window(fields: Fields, prefix: str) -> int:
    key = f"{prefix}.attention.sliding_window"
    return max(0, fields.integer(key, limits.ANY_INTEGER)) if fields.has(key) else 0


def _has_bias(header: GgufHeader, module: str) -> bool:
    return header.find(f"blk.0.{module}.bias") is not None


def _token_id(fields: Fields, role: str) -> int | None:
    key = f"tokenizer.ggml.{role}_token_id"
    return fields.integer(key, limits.TOKEN_ID) if fields.has(key) else None


def _end_ids(fields: Fields) -> tuple[int, ...]:
    """End of sequence, then end of turn where it is another token."""
    found = (_token_id(fields, role) for role in ("eos", "eot"))
    return tuple(dict.fromkeys(token for token in found if token is not None))


def _float_dtype(header: GgufHeader) -> Literal["fp32", "bf16", "fp16"] | None:
    """The one float dtype of all matrices; None where they are packed or mixed."""
    stored = {tensor.type.stored_dtype for tensor in header.tensors if len(tensor.shape) > 1}
    for dtype in ("fp32", "bf16", "fp16"):
        if stored == {dtype}:
            return dtype
    return None
