"""Which of the models that can be described the engine can run, and with which switches."""

from collections.abc import Iterator
from typing import Final

from llmprof.architectures.checkpoint_formats import holds_fp8
from llmprof.architectures.families import find_family
from llmprof.architectures.gguf_types import GGML_TYPES, LOADABLE_TYPES
from llmprof.architectures.source import ModelSource
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.layers import ExpertMlp, LayerShape
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import (
    ExecutionMode,
    RoutingKind,
    RunConfig,
    WeightSource,
)

FAMILIES: Final = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "phi3",
    "glm",
    "glm4",
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "gemma2",
    "gemma3",
)
"""Whose every layer the engine computes as it is meant."""
_SCALINGS: Final = ("linear", "llama3", "yarn", "longrope")
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


def check_switches(model: ModelConfig, config: RunConfig) -> None:
    """Refuse switches that a mixture of experts does not have, and routing without experts.

    Raises:
        CapabilityError: the engine cannot do it.
        InputError: settings that do nothing or contradict each other.
    """
    routing = config.routing
    if not any(kind.mlp.kind == "experts" for kind in model.layer_kinds):
        if routing.kind is not RoutingKind.ROUTER:
            raise InputError(
                f"routing.kind={routing.kind.value} needs experts, and {model.name} has none",
                remedy="Remove it",
            )
        return
    if routing.kind is not RoutingKind.ROUTER and config.weights.source is WeightSource.FILE:
        raise InputError(
            f"routing.kind={routing.kind.value} is for random weights: with real ones the router "
            "decides",
            remedy="Set weights.source=random or routing.kind=router",
        )
    if config.execution.mode is not ExecutionMode.EAGER:
        raise CapabilityError(
            f"execution.mode={config.execution.mode.value} replays the same kernels in every step, "
            f"and the steps of {model.name} pass other experts each time",
            remedy="Set execution.mode=eager",
        )


def check_rotation(model: ModelConfig, prompt_tokens: int, tokens: int) -> None:
    """Refuse sequences that grow beyond the original context of longrope.

    Where one does, every key would have to be rotated again, by the factors of long sequences.

    Raises:
        CapabilityError: the engine rotates a key once.
    """
    scaling = model.rope_scaling
    if scaling is None or scaling.kind != "longrope":
        return
    original = scaling.original_max_position_embeddings or model.max_position_embeddings
    if prompt_tokens <= original < tokens:
        raise CapabilityError(
            f"a prompt of {prompt_tokens:,} tokens that grows to {tokens:,} passes the original "
            f"context of {model.name}, {original:,} tokens, from which on it rotates otherwise",
            remedy=f"Ask for {original:,} tokens at most, or a prompt of more than that",
        )


def _reasons(source: ModelSource) -> Iterator[str]:
    model = source.config
    for kind in model.layer_kinds:
        yield from _unlike_plain(kind)
    if find_family(model.model_type, model.name).model_type not in FAMILIES:
        yield f"the norms, activations and scales of the family {model.model_type} are its own"
    yield from _rotation(model)
    if model.activation == "gelu":
        yield "the activation gelu without its approximation by tanh"
    if model.quantization is not None and not holds_fp8(model.quantization):
        yield f"checkpoints quantized by '{model.quantization.method}' cannot be loaded"
    for tensor in source.manifest.tensors if source.has_weights else ():
        if tensor.stored_dtype in _UNLOADABLE:
            yield f"tensor '{tensor.name}' is stored as {_UNLOADABLE[tensor.stored_dtype]}"


def _rotation(model: ModelConfig) -> Iterator[str]:
    scaling = model.rope_scaling
    if scaling is not None and (scaling.kind not in _SCALINGS or not scaling.truncate):
        yield f"rotary scaling '{scaling.kind}'" + (
            "" if scaling.truncate else " without truncation"
        )
    if scaling is not None and scaling.kind == "longrope":
        factors = {len(scaling.short_factors), len(scaling.long_factors)}
        if factors != {model.rotary_dim // 2}:
            yield f"rotary scaling 'longrope' without a factor for each of {model.rotary_dim // 2} pairs"
    if model.rotary_dim < 2 or model.rotary_dim % 2:
        yield f"rotation of {model.rotary_dim} channels of each head, which are no pairs"


def _unlike_plain(kind: LayerShape) -> Iterator[str]:
    attention = kind.attention
    if attention.kind == "latent":
        yield "multi-head latent attention"
    elif attention.kind == "linear":
        yield "linear attention with a state per sequence"
    elif attention.shares_cache:
        yield "layers that share the keys and values of another one"
    if kind.mlp.kind == "experts" and not _plainly_routed(kind.mlp):
        yield "a mixture of experts with ungated shared experts, biases or a router of its own kind"


def _plainly_routed(mlp: ExpertMlp) -> bool:
    """Experts without biases, chosen by a plain router; beside them at most a gated shared one."""
    own = (mlp.bias, mlp.fused, mlp.router_bias, mlp.router_scales, mlp.router_correction)
    ungated = bool(mlp.shared_intermediate_size) and not mlp.shared_gate
    return not (any(own) or ungated or mlp.dense_beside)
