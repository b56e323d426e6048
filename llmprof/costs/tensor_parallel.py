"""Weights on one of several devices that share out each layer (tensor parallel).

Source: Shoeybi et al. 2019, "Megatron-LM": columns of the first product and rows of the second are
shared out. Norms, routers, biases after a sum, and the projections to and from a latent's low rank
are on every device; KV heads are repeated where devices outnumber them.
"""

from typing import Final

from llmprof.architectures.manifest import PER_LAYER_EMBEDDING, POSITIONS
from llmprof.costs.kv_cache import heads_per_device
from llmprof.errors import InputError
from llmprof.schema.layers import SoftmaxAttention
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
"""Split by input: the bias is on every device."""


def weight_bytes_per_device(model: ModelConfig, weights: WeightManifest, devices: int) -> int:
    """Of the largest device: what does not divide evenly is rounded up, tensor by tensor.

    Raises:
        InputError: heads that cannot be shared out evenly.
    """
    if devices == 1:
        return weights.stored_bytes
    _check_heads(model, devices)
    return sum(_tensor_bytes(model, tensor, devices) for tensor in weights.tensors)


def _check_heads(model: ModelConfig, devices: int) -> None:
    for layer, _ in model.kinds:
        heads = (
            layer.attention.value_heads
            if layer.attention.kind == "linear"
            else layer.attention.query_heads
        )
        if heads % devices:
            raise InputError(
                f"{heads} heads of {model.name} cannot be shared out evenly over {devices} devices",
                remedy=f"Set parallel.tensor to a divisor of {heads}",
            )


def _tensor_bytes(model: ModelConfig, tensor: TensorSpec, devices: int) -> int:
    parent, _, last = tensor.name.rpartition(".")
    module = parent.rpartition(".")[2] if last in ("weight", "bias") else last
    stored = tensor.stored_bytes
    if tensor.name in (POSITIONS, PER_LAYER_EMBEDDING):
        return stored
    if module in ("k_proj", "v_proj"):
        return -(-stored // _kv_parts(_attention(model, tensor.name), devices))
    if module == "qkv_proj":
        return _fused_bytes(_attention(model, tensor.name), stored, devices)
    if module in _SHARED_OUT or (module in _SUMMED and last == "weight"):
        return -(-stored // devices)
    return stored


def _kv_parts(attention: SoftmaxAttention, devices: int) -> int:
    return attention.kv_heads // heads_per_device(attention.kv_heads, devices)


def _fused_bytes(attention: SoftmaxAttention, stored: int, devices: int) -> int:
    queries = attention.query_heads * attention.key_dim
    keys = attention.kv_heads * (attention.key_dim + attention.value_dim)
    kept = queries / devices + keys / _kv_parts(attention, devices)
    return round(stored * kept / (queries + keys))


def _attention(model: ModelConfig, name: str) -> SoftmaxAttention:
    """Of the layer that a tensor lies in."""
    attention = model.layers[int(name.split(".")[2])].attention
    assert isinstance(attention, SoftmaxAttention), "no other kind has these projections"
    return attention
