"""The tensors that a configuration implies, and the check of a file against them."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Final, Literal

from llmprof.architectures.layer_tensors import layer_tensors, norm, projection
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.layers import LayerShape
from llmprof.schema.model import ModelConfig, TensorSpec, WeightManifest

FLOAT_BYTES: Final = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of one number of the dtypes that weights are kept in unpacked."""

EMBEDDING: Final = "model.embed_tokens.weight"
FINAL_NORM: Final = "model.norm.weight"
LM_HEAD: Final = "lm_head.weight"
POSITIONS: Final = "model.embed_positions.weight"
PER_LAYER_EMBEDDING: Final = "model.embed_tokens_per_layer.weight"


def expected_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Hugging Face name -> shape of every parameter, in the order of the forward pass.

    Names are those of a Llama checkpoint where a family has its own for the same module.
    Projections are [out_features, in_features]; the experts of a layer are one tensor, [experts,
    out_features, in_features]. A tied head is the embedding and has no tensor.
    """
    hidden = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (config.vocab_size, hidden)}
    if config.learned_positions:
        shapes[POSITIONS] = (config.learned_positions, hidden)
    shapes |= _per_layer_inputs(config)
    each = {kind: _layer_tensors(config, kind) for kind, _ in config.kinds}
    for index, kind in enumerate(config.layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in each[kind].items()}
    shapes |= norm(FINAL_NORM.removesuffix(".weight"), hidden, bias=config.norm_bias)
    if not config.tie_word_embeddings:
        shapes[LM_HEAD] = (config.vocab_size, hidden)
    return shapes


def expected_buffers(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """What checkpoints store in fp32 beside the parameters: the correction of a router's balance."""
    return {
        f"model.layers.{index}.mlp.router.e_score_correction_bias": (kind.mlp.num_experts,)
        for index, kind in enumerate(config.layers)
        if kind.mlp.kind == "experts" and kind.mlp.router_correction
    }


def _layer_tensors(config: ModelConfig, kind: LayerShape) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.per_layer_input_size
    shapes = layer_tensors(kind, hidden, norm_bias=config.norm_bias)
    if inner:
        shapes |= projection("per_layer_input_gate", inner, hidden)
        shapes |= projection("per_layer_projection", hidden, inner)
        shapes |= norm("post_per_layer_input_norm", hidden)
    return shapes


def _per_layer_inputs(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Gemma 4: a second table with the channels of all layers side by side."""
    inner = config.per_layer_input_size
    if not inner:
        return {}
    width = config.num_hidden_layers * inner
    return {
        PER_LAYER_EMBEDDING: (config.per_layer_vocab_size, width),
        **projection("model.per_layer_model_projection", width, config.hidden_size),
        **norm("model.per_layer_projection_norm", inner),
    }


def manifest_from_config(config: ModelConfig, dtype: str) -> WeightManifest:
    """Every tensor stored in one float dtype: fp32, bf16 or fp16.

    Raises:
        CapabilityError: any other dtype.
    """
    if dtype not in FLOAT_BYTES:
        raise CapabilityError(
            f"weights cannot be laid out in '{dtype}'; possible: {', '.join(FLOAT_BYTES)}"
        )
    tensors = [float_spec(name, shape, dtype) for name, shape in expected_tensors(config).items()]
    return WeightManifest(origin="config", tensors=(*tensors, *buffer_specs(config)))


def float_spec(name: str, shape: tuple[int, ...], dtype: str) -> TensorSpec:
    stored = prod(shape) * FLOAT_BYTES[dtype]
    return TensorSpec(name=name, shape=shape, stored_dtype=dtype, stored_bytes=stored)


def buffer_specs(config: ModelConfig) -> tuple[TensorSpec, ...]:
    return tuple(
        float_spec(name, shape, "fp32").model_copy(update={"buffer": True})
        for name, shape in expected_buffers(config).items()
    )


def checked_manifest(
    config: ModelConfig,
    found: Sequence[TensorSpec],
    *,
    origin: Literal["safetensors", "gguf"],
    where: str,
    file_name: Callable[[str], str] = str,
    apart: Sequence[TensorSpec] = (),
) -> WeightManifest:
    """The tensors that a file stores, in the order of the forward pass.

    The stored copy of a tied head is the embedding again: it is checked and not counted.
    `file_name` gives the name that the file uses, for messages; `apart` is what the file holds
    beside the decoder.

    Raises:
        InputError: a tensor is missing, surplus or of another shape than the configuration says.
    """
    stored = {spec.name: spec for spec in found}
    expected = expected_tensors(config)
    buffers = expected_buffers(config)
    shapes = {LM_HEAD: expected[EMBEDDING]} | expected | buffers
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
    kept = [stored[name] for name in expected]
    kept += [stored[name].model_copy(update={"buffer": True}) for name in buffers if name in stored]
    return WeightManifest(origin=origin, tensors=tuple(kept), apart=tuple(apart))
