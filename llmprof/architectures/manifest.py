"""The tensors that a configuration implies, and the check of a file against them."""

from collections.abc import Callable, Sequence
from typing import Final, Literal

from llmprof.errors import CapabilityError, InputError
from llmprof.schema.model import ModelConfig, TensorSpec, WeightManifest

FLOAT_BYTES: Final = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of one number of the dtypes that weights are kept in unpacked."""

EMBEDDING: Final = "model.embed_tokens.weight"
FINAL_NORM: Final = "model.norm.weight"
LM_HEAD: Final = "lm_head.weight"


def expected_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Hugging Face name -> shape of every parameter, in the order of the forward pass.

    Projections are [out_features, in_features]. A tied head is the embedding and has no tensor.
    """
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (config.vocab_size, config.hidden_size)}
    layer = _layer_tensors(config)
    for index in range(config.num_hidden_layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    shapes[FINAL_NORM] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        shapes[LM_HEAD] = (config.vocab_size, config.hidden_size)
    return shapes


def _layer_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, intermediate = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {"input_layernorm.weight": (hidden,)}
    shapes |= _projection("self_attn.q_proj", config.query_size, hidden, config.attention_bias)
    shapes |= _projection("self_attn.k_proj", config.kv_size, hidden, config.attention_bias)
    shapes |= _projection("self_attn.v_proj", config.kv_size, hidden, config.attention_bias)
    if config.qk_norm:
        shapes["self_attn.q_norm.weight"] = (config.head_dim,)
        shapes["self_attn.k_norm.weight"] = (config.head_dim,)
    shapes |= _projection("self_attn.o_proj", hidden, config.query_size, config.output_bias)
    shapes["post_attention_layernorm.weight"] = (hidden,)
    shapes |= _projection("mlp.gate_proj", intermediate, hidden, config.mlp_bias)
    shapes |= _projection("mlp.up_proj", intermediate, hidden, config.mlp_bias)
    shapes |= _projection("mlp.down_proj", hidden, intermediate, config.mlp_bias)
    return shapes


def _projection(name: str, rows: int, columns: int, bias: bool) -> dict[str, tuple[int, ...]]:
    weight: dict[str, tuple[int, ...]] = {f"{name}.weight": (rows, columns)}
    return weight | {f"{name}.bias": (rows,)} if bias else weight


def manifest_from_config(config: ModelConfig, dtype: str) -> WeightManifest:
    """Every tensor stored in one float dtype: fp32, bf16 or fp16.

    Raises:
        CapabilityError: any other dtype.
    """
    if dtype not in FLOAT_BYTES:
        raise CapabilityError(
            f"weights cannot be laid out in '{dtype}'; possible: {', '.join(FLOAT_BYTES)}"
        )
    tensors = []
    for name, shape in expected_tensors(config).items():
        spec = TensorSpec(name=name, shape=shape, stored_dtype=dtype, stored_bytes=0)
        stored_bytes = spec.parameters * FLOAT_BYTES[dtype]
        tensors.append(spec.model_copy(update={"stored_bytes": stored_bytes}))
    return WeightManifest(origin="config", tensors=tuple(tensors))


def checked_manifest(
    config: ModelConfig,
    found: Sequence[TensorSpec],
    *,
    origin: Literal["safetensors", "gguf"],
    where: str,
    file_name: Callable[[str], str] = str,
) -> WeightManifest:
    """The tensors that a file stores, in the order of the forward pass.

    The stored copy of a tied head is the embedding again: it is checked and not counted.
    `file_name` gives the name that the file uses, for messages.

    Raises:
        InputError: a tensor is missing, surplus or of another shape than the configuration says.
    """
    stored = {spec.name: spec for spec in found}
    expected = expected_tensors(config)
    shapes = {LM_HEAD: expected[EMBEDDING]} | expected
    for name, spec in stored.items():
        if name not in shapes:
            raise InputError(
                f"{where}: tensor '{file_name(name)}' has no place in this {config.model_type} model"
            )
        if spec.shape != shapes[name]:
            raise InputError(
                f"{where}: tensor '{file_name(name)}' has the shape {list(spec.shape)}, "
                f"the configuration asks for {list(shapes[name])}"
            )
    for name in expected:
        if name not in stored:
            raise InputError(f"{where}: tensor '{file_name(name)}' is missing")
    return WeightManifest(origin=origin, tensors=tuple(stored[name] for name in expected))
