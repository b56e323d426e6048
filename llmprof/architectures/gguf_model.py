"""A GGUF header as a model: its shape, and its tensors under their Hugging Face names."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from llmprof.architectures import limits
from llmprof.architectures.config_json import parse_config
from llmprof.architectures.families import FAMILIES, Family, refuse_architecture
from llmprof.architectures.fields import Fields
from llmprof.architectures.gguf_facts import (
    end_ids,
    float_dtype,
    head_dim_of,
    norm_eps,
    per_layer,
    rope_theta,
    token_id,
    vocab_size,
)
from llmprof.architectures.gguf_families import own_family, translated_config
from llmprof.architectures.gguf_header import GgufHeader, GgufTensor
from llmprof.architectures.gguf_names import gguf_name, hf_name
from llmprof.architectures.gguf_rope import (
    LONG_FACTORS,
    ROPE_FACTORS,
    SHORT_FACTORS,
    scaling_from_header,
)
from llmprof.architectures.manifest import checked_manifest
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.model import ModelConfig, TensorSpec, WeightManifest

_GGUF_FAMILIES: Final = ("llama", "qwen2", "qwen3")
"""Values of general.architecture; Mistral files say llama."""

_NEUTRAL: Final[Mapping[str, tuple[object, ...]]] = {
    "expert_count": (0,),
    "expert_shared_count": (0,),
    "expert_shared_feed_forward_length": (0,),
    "expert_group_count": (0, 1),
    "expert_gating_func": (0, 1),
    "expert_weights_scale": (0.0, 1.0),
    "expert_weights_norm": (True,),
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
    prefix = fields.text("general.architecture")
    own = own_family(fields)
    _refuse_variations(fields, prefix, own.numbers if own else ())
    if own:
        model = parse_config(
            translated_config(header, fields, own), name=name, where=str(header.path)
        )
        scaling = scaling_from_header(header, fields, prefix, model.head_dim)
        return model.model_copy(update={"rope_scaling": scaling})
    family = _family(fields)
    hidden = fields.integer(f"{prefix}.embedding_length", limits.HIDDEN)
    heads = per_layer(fields, f"{prefix}.attention.head_count", limits.HEADS)
    kv_key = f"{prefix}.attention.head_count_kv"
    kv_heads = per_layer(fields, kv_key, limits.HEADS) if fields.has(kv_key) else heads
    if heads % kv_heads:
        fields.wrong(kv_key, f"expected a divisor of the {heads} attention heads")
    head_dim = head_dim_of(fields, prefix, hidden, heads)
    positions = fields.integer(f"{prefix}.context_length", limits.POSITIONS)
    plain = ModelConfig(
        name=name,
        model_type=family.model_type,
        num_hidden_layers=fields.integer(f"{prefix}.block_count", limits.LAYERS),
        hidden_size=hidden,
        intermediate_size=per_layer(fields, f"{prefix}.feed_forward_length", limits.INTERMEDIATE),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=vocab_size(header, fields, prefix),
        max_position_embeddings=positions,
        rope_theta=rope_theta(fields, prefix),
        rope_scaling=scaling_from_header(header, fields, prefix, head_dim),
        rms_norm_eps=norm_eps(fields, prefix),
        tie_word_embeddings=header.find("output.weight") is None,
        attention_bias=family.attention_bias == "qkv" or _has_bias(header, "attn_q"),
        output_bias=_has_bias(header, "attn_output"),
        mlp_bias=_has_bias(header, "ffn_gate"),
        qk_norm=family.qk_norm,
        bos_token_id=token_id(fields, "bos"),
        eos_token_ids=end_ids(fields),
        torch_dtype=float_dtype(header),
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
    architecture = str(header.metadata["general.architecture"])
    try:
        found = [
            _spec(tensor, architecture)
            for tensor in header.tensors
            if tensor.name not in (ROPE_FACTORS, LONG_FACTORS, SHORT_FACTORS)
        ]
    except CapabilityError as error:
        raise CapabilityError(f"{header.path}: {error.message}") from error
    return checked_manifest(
        config,
        found,
        origin="gguf",
        where=str(header.path),
        file_name=partial(gguf_name, architecture=architecture),
    )


def _spec(tensor: GgufTensor, architecture: str) -> TensorSpec:
    return TensorSpec(
        name=hf_name(tensor.name, architecture),
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


def _refuse_variations(fields: Fields, prefix: str, understood: Collection[str]) -> None:
    for key, neutral in _NEUTRAL.items():
        name = f"{prefix}.{key}"
        if key in understood:
            continue
        if fields.has(name) and fields.raw(name) not in neutral:
            raise CapabilityError(
                f"{fields.where}: '{name}' is {fields.raw(name)!r}, "
                f"a variation of {prefix} that is not supported"
            )


def _window(fields: Fields, prefix: str) -> int:
    key = f"{prefix}.attention.sliding_window"
    return max(0, fields.integer(key, limits.ANY_INTEGER)) if fields.has(key) else 0


def _has_bias(header: GgufHeader, module: str) -> bool:
    return header.find(f"blk.0.{module}.bias") is not None
