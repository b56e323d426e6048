"""Which of the models that can be described the engine can run: plain dense decoders."""

from collections.abc import Iterator
from typing import Final

from llmprof.architectures.gguf_types import GGML_TYPES, LOADABLE_TYPES
from llmprof.architectures.source import ModelSource
from llmprof.errors import CapabilityError
from llmprof.schema.layers import LayerShape
from llmprof.schema.model import ModelConfig

FAMILIES: Final = ("llama", "mistral", "qwen2", "qwen3")
"""Whose every layer the engine computes as it is meant."""
_SCALINGS: Final = ("linear", "llama3", "yarn")
_UNLOADABLE: Final = {
    kind.stored_dtype: kind.name for kind in GGML_TYPES.values() if kind.name not in LOADABLE_TYPES
}


def check_model(source: ModelSource) -> None:
    """Refuse a model that the engine would compute wrongly or could not load.

    Raises:
        CapabilityError: with what the model has that the engine lacks.
    """
    for reason in _reasons(source):
        raise CapabilityError(
            f"the engine cannot run {source.name} ({source.config.model_type}): {reason}",
            remedy=f"It runs {', '.join(FAMILIES)}; `llmprof inspect` works every model out on paper",
        )


def check_window(model: ModelConfig, tokens: int) -> None:
    """Refuse sequences of so many tokens that a layer would see only a part of.

    Raises:
        CapabilityError: the attention of the engine is in full.
    """
    windows = [
        layer.attention.window
        for layer in model.layer_kinds
        if layer.attention.kind == "softmax" and layer.attention.window
    ]
    if windows and tokens > min(windows):
        raise CapabilityError(
            f"{tokens:,} tokens are more than the sliding window of {min(windows):,} tokens in "
            f"which {model.name} attends, and the engine attends to all of them",
            remedy=f"Ask for {min(windows):,} tokens at most",
        )


def _reasons(source: ModelSource) -> Iterator[str]:
    model = source.config
    for kind in model.layer_kinds:
        yield from _unlike_plain(kind)
    if model.model_type not in FAMILIES:
        yield f"the norms, activations and scales of the family {model.model_type} are its own"
    scaling = model.rope_scaling
    if scaling is not None and (scaling.kind not in _SCALINGS or not scaling.truncate):
        yield f"rotary scaling '{scaling.kind}'" + (
            "" if scaling.truncate else " without truncation"
        )
    if model.quantization is not None:
        yield f"checkpoints quantized by '{model.quantization.method}' cannot be loaded"
    for tensor in source.manifest.tensors if source.has_weights else ():
        if tensor.stored_dtype in _UNLOADABLE:
            yield f"tensor '{tensor.name}' is stored as {_UNLOADABLE[tensor.stored_dtype]}"


def _unlike_plain(kind: LayerShape) -> Iterator[str]:
    attention = kind.attention
    if attention.kind == "latent":
        yield "multi-head latent attention"
    elif attention.kind == "linear":
        yield "linear attention with a state per sequence"
    elif attention.shares_cache:
        yield "layers that share the keys and values of another one"
    elif attention.chunk:
        yield "attention within chunks"
    if kind.mlp.kind == "experts":
        yield "a mixture of experts"
