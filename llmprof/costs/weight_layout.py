"""Which format each tensor of a model is kept in, and what that takes: before anything is loaded."""

from math import prod
from typing import Final

from llmprof.architectures.manifest import EMBEDDING, FLOAT_BYTES, LM_HEAD, expected_tensors
from llmprof.costs.weight_formats import FP8, WeightFormat
from llmprof.errors import CapabilityError
from llmprof.schema.model import ModelConfig, TensorSpec, WeightManifest
from llmprof.schema.settings import Quantization, WeightsSettings

_DEQUANTIZED: Final = "bf16"
_FLOATS: Final = (
    ".bias",
    ".conv1d.weight",
    ".mlp.router.weight",
    ".mlp.shared_expert_gate.weight",
)
"""Small: biases (of experts, they have two dimensions) and the few taps of a convolution; a router
decides by small margins which experts a token passes, and the gate of a shared
expert is one row that scales all of its output."""
_DEFAULT_GROUP: Final = 32
"""Loses little: with one scale per channel, int8 changes every 16th most probable token of the demo
model (`llmprof quality`)."""


def laid_out(model: ModelConfig, weights: WeightsSettings, dtype: str) -> WeightManifest:
    """Every tensor as the engine will keep it; `dtype` is the run's float dtype.

    Raises:
        CapabilityError: a matrix whose rows cannot be packed.
    """
    tensors = []
    for name, shape in expected_tensors(model).items():
        fmt = format_of(name, shape, weights, dtype)
        tensors.append(spec_of(name, shape, fmt))
    return WeightManifest(origin="config", tensors=tuple(tensors))


def spec_of(name: str, shape: tuple[int, ...], fmt: WeightFormat) -> TensorSpec:
    """A vector, a matrix or the matrices of a layer's experts in a format."""
    rows, columns = prod(shape[:-1]), shape[-1]
    return TensorSpec(
        name=name, shape=shape, stored_dtype=fmt.name, stored_bytes=fmt.stored_bytes(rows, columns)
    )


def format_of(
    name: str, shape: tuple[int, ...], weights: WeightsSettings, dtype: str
) -> WeightFormat:
    """How the engine keeps a tensor.

    Norms, biases, convolutions, routers and the gates of shared experts stay floats. The head decides by
    small margins which token wins, and where they are tied the embedding is the head: with int4 and fp8 both
    are kept in int8, in groups of 32, which takes as many bytes as fp8 and rounds a quarter as much.

    Raises:
        CapabilityError: a matrix whose rows cannot be packed.
    """
    floats = len(shape) < 2 or name.endswith(_FLOATS)
    if floats or weights.quantization is Quantization.NONE:
        return WeightFormat(dtype)
    fmt = _packed_format(weights, is_head=name in (EMBEDDING, LM_HEAD))
    fmt.check_fits(name, shape[-1])
    return fmt


def _packed_format(weights: WeightsSettings, *, is_head: bool) -> WeightFormat:
    match weights.quantization:
        case Quantization.INT4 | Quantization.FP8 if is_head:
            return WeightFormat("int8", _DEFAULT_GROUP)
        case Quantization.INT8:
            return WeightFormat("int8", _group_size(weights))
        case Quantization.INT4:
            return WeightFormat("int4", _group_size(weights), weights.symmetric)
        case Quantization.FP8:
            return FP8
        case _:
            raise CapabilityError(
                f"no layout for weights.quantization={weights.quantization.value}"
            )


def _group_size(weights: WeightsSettings) -> int | None:
    """None: one scale per output channel."""
    if weights.group_size == "channel":
        return None
    return weights.group_size or _DEFAULT_GROUP


def float_dtype(stored: WeightManifest) -> str:
    """What a file is computed in unless somebody says otherwise.

    The float dtype that holds most of the bytes; bf16 where any tensor is packed.
    """
    by_dtype: dict[str, int] = {}
    for tensor in stored.tensors:
        by_dtype[tensor.stored_dtype] = by_dtype.get(tensor.stored_dtype, 0) + tensor.stored_bytes
    if set(by_dtype) - set(FLOAT_BYTES):
        return _DEQUANTIZED
    return max(by_dtype, key=lambda name: by_dtype[name])
