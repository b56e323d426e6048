"""A model shared out over several devices, layer by layer (tensor parallel).

Source: Shoeybi et al. 2019, "Megatron-LM": columns of the first product and rows of the second are
shared out, and the results of the second are summed by an all-reduce. Embedding and head are shared
out by rows of the vocabulary. Norms, routers, biases after a sum, and the projections to and from a
latent's low rank are on every device; KV heads are repeated where devices outnumber them.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Final

from llmprof.architectures.manifest import PER_LAYER_EMBEDDING, POSITIONS
from llmprof.costs.kv_cache import heads_per_device
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.layers import (
    AttentionShape,
    DenseMlp,
    ExpertMlp,
    LayerShape,
    MlpShape,
    SoftmaxAttention,
)
from llmprof.schema.model import ModelConfig, TensorSpec, WeightManifest

_SHARED_OUT: Final = (
    "q_proj",
    "q_b_proj",
    "kv_b_proj",
    "gate_proj",
    "up_proj",
    "gate_up_proj",
    "embed_tokens",
    "lm_head",
    "sinks",
    "in_proj_qkvz",
    "in_proj_ba",
    "in_proj_qkv",
    "in_proj_z",
    "in_proj_b",
    "in_proj_a",
    "conv1d",
    "dt_bias",
    "A_log",
)
"""Split by output: the bias goes with the rows."""
_SUMMED: Final = ("o_proj", "down_proj", "out_proj")
"""Split by input: the bias is on every device, and one of them adds it."""


@dataclass(frozen=True, slots=True)
class TensorSplit:
    """How a tensor is shared out along one axis."""

    by_columns: bool
    """Along the last axis of a matrix; else along its rows, or along a vector."""
    sections: tuple[tuple[int, int], ...]
    """Size and number of parts of what lies one after the other along the axis and is shared out each
    by itself: queries, keys and values of a fused projection."""

    @property
    def kept(self) -> Fraction:
        """Share of the tensor that one device keeps."""
        whole = sum(size for size, _ in self.sections)
        return sum((Fraction(size, parts) for size, parts in self.sections), Fraction()) / whole

    def spans(self, rank: int, devices: int) -> tuple[tuple[int, int], ...]:
        """Start and size of what device `rank` keeps of each section."""
        found, start = [], 0
        for size, parts in self.sections:
            part = size // parts
            found.append((start + part * (rank * parts // devices), part))
            start += size
        return tuple(found)


def is_summed_bias(name: str) -> bool:
    """Whether a tensor is added to a sum over the devices, and so by one of them alone."""
    module, last = _module_of(name)
    return module in _SUMMED and last == "bias"


def split_of(
    model: ModelConfig, name: str, shape: tuple[int, ...], devices: int
) -> TensorSplit | None:
    """How `model` shares out one of its tensors, of the whole `shape`; None: it is on every device."""
    module, last = _module_of(name)
    if name in (POSITIONS, PER_LAYER_EMBEDDING):
        return None
    if module in _SUMMED and last == "weight":
        return TensorSplit(by_columns=True, sections=((shape[-1], devices),))
    rows = shape[-2] if last == "weight" and len(shape) > 1 else shape[-1]
    if module in ("k_proj", "v_proj"):
        parts = _kv_parts(_attention(model, name), devices)
        return TensorSplit(by_columns=False, sections=((rows, parts),))
    if module == "qkv_proj":
        return TensorSplit(False, _fused_sections(_attention(model, name), devices))
    if module == "gate_up_proj":
        return TensorSplit(by_columns=False, sections=((rows // 2, devices),) * 2)
    if module in _SHARED_OUT:
        return TensorSplit(by_columns=False, sections=((rows, devices),))
    return None


def weight_bytes_per_device(model: ModelConfig, weights: WeightManifest, devices: int) -> int:
    """Of the largest device: what does not divide evenly is rounded up, tensor by tensor.

    Raises:
        InputError: heads that cannot be shared out evenly.
    """
    if devices == 1:
        return weights.stored_bytes
    _check_heads(model, devices)
    return sum(_tensor_bytes(model, tensor, devices) for tensor in weights.tensors)


def shard_of(model: ModelConfig, devices: int) -> ModelConfig:
    """What one of so many devices computes of a model, as a model of its own.

    Its hidden states are whole, its heads, inner channels and rows of the vocabulary a part.

    Raises:
        InputError: heads, inner channels or a vocabulary that cannot be shared out evenly.
        CapabilityError: attention of a kind that is not shared out here.
    """
    if devices == 1:
        return model
    _check_heads(model, devices)
    return model.model_copy(
        update={
            "num_attention_heads": model.num_attention_heads // devices,
            "num_key_value_heads": heads_per_device(model.num_key_value_heads, devices),
            "intermediate_size": _even(model, model.intermediate_size, "inner channels", devices),
            "vocab_size": _even(model, model.vocab_size, "rows of the vocabulary", devices),
            "layer_kinds": tuple(_shard_of_layer(model, one, devices) for one in model.layer_kinds),
        }
    )


def _shard_of_layer(model: ModelConfig, layer: LayerShape, devices: int) -> LayerShape:
    return layer.model_copy(
        update={
            "attention": _shard_of_attention(model, layer.attention, devices),
            "mlp": _shard_of_mlp(model, layer.mlp, devices),
        }
    )


def _shard_of_attention(
    model: ModelConfig, shape: AttentionShape, devices: int
) -> SoftmaxAttention:
    if not isinstance(shape, SoftmaxAttention):
        raise CapabilityError(
            f"{shape.kind} attention of {model.name} cannot be shared out over devices here",
            remedy="Set parallel.tensor=1",
        )
    return shape.model_copy(
        update={
            "query_heads": shape.query_heads // devices,
            "kv_heads": heads_per_device(shape.kv_heads, devices),
        }
    )


def _shard_of_mlp(model: ModelConfig, shape: MlpShape, devices: int) -> MlpShape:
    inner = _even(model, shape.intermediate_size, "inner channels", devices)
    if isinstance(shape, DenseMlp):
        return shape.model_copy(update={"intermediate_size": inner})
    return _shard_of_experts(model, shape, inner, devices)


def _shard_of_experts(model: ModelConfig, shape: ExpertMlp, inner: int, devices: int) -> ExpertMlp:
    """Every device has a part of every expert."""
    beside = shape.dense_beside
    shared = _even(model, shape.shared_intermediate_size, "shared channels", devices)
    return shape.model_copy(
        update={
            "intermediate_size": inner,
            "shared_intermediate_size": shared,
            "dense_beside": beside and _shard_of_mlp(model, beside, devices),
        }
    )


def _even(model: ModelConfig, size: int, what: str, devices: int) -> int:
    if size % devices:
        raise InputError(
            f"{size} {what} of {model.name} cannot be shared out evenly over {devices} devices",
            remedy=f"Set parallel.tensor to a divisor of {size}",
        )
    return size // devices


def _check_heads(model: ModelConfig, devices: int) -> None:
    for layer, _ in model.kinds:
        heads = (
            layer.attention.value_heads
            if layer.attention.kind == "linear"
            else layer.attention.query_heads
        )
        _even(model, heads, "heads", devices)


def _tensor_bytes(model: ModelConfig, tensor: TensorSpec, devices: int) -> int:
    split = split_of(model, tensor.name, tensor.shape, devices)
    return tensor.stored_bytes if split is None else ceil(tensor.stored_bytes * split.kept)


def _module_of(name: str) -> tuple[str, str]:
    """`model.layers.3.self_attn.q_proj.bias` -> q_proj, bias; of a bare parameter its name twice."""
    parent, _, last = name.rpartition(".")
    if last in ("weight", "bias"):
        return parent.rpartition(".")[2], last
    return last, last


def _kv_parts(attention: SoftmaxAttention, devices: int) -> int:
    return attention.kv_heads // heads_per_device(attention.kv_heads, devices)


def _fused_sections(attention: SoftmaxAttention, devices: int) -> tuple[tuple[int, int], ...]:
    parts = _kv_parts(attention, devices)
    return (
        (attention.query_heads * attention.key_dim, devices),
        (attention.kv_heads * attention.key_dim, parts),
        (attention.kv_heads * attention.value_dim, parts),
    )


def _attention(model: ModelConfig, name: str) -> SoftmaxAttention:
    """Of the layer that a tensor lies in."""
    attention = model.layers[int(name.split(".")[2])].attention
    assert isinstance(attention, SoftmaxAttention), "no other kind has these projections"
    return attention
