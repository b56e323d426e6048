"""Layers for multi-token prediction: stored beside the decoder, and no part of its steps.

Source: DeepSeek-V3 technical report, section 2.2, and its README_WEIGHTS; Qwen3-Next's checkpoint.
"""

from math import prod

from llmprof.architectures.layer_tensors import layer_tensors, norm, projection
from llmprof.schema.model import ModelConfig


def mtp_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """A last layer of the decoder each, with a projection of two hidden states and three norms."""
    hidden = config.hidden_size
    layer = layer_tensors(config.layers[-1], hidden, norm_bias=config.norm_bias)
    shapes: dict[str, tuple[int, ...]] = {}
    for index in range(config.num_hidden_layers, config.num_hidden_layers + config.mtp_layers):
        one = layer | projection("eh_proj", hidden, 2 * hidden)
        for name in ("enorm", "hnorm", "shared_head.norm"):
            one |= norm(name, hidden)
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in one.items()}
    return shapes


def mtp_copies(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Embedding and head, which DeepSeek-V3 stores again with each of these layers."""
    table = (config.vocab_size, config.hidden_size)
    names = ("embed_tokens.weight", "shared_head.head.weight")
    layers = range(config.num_hidden_layers, config.num_hidden_layers + config.mtp_layers)
    if config.model_type != "deepseek_v3":
        return {}
    return {f"model.layers.{index}.{name}": table for index in layers for name in names}


def mtp_buffers(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Stored in fp32: the correction of the router, as in the layer that is repeated."""
    last = config.layers[-1].mlp
    if last.kind != "experts" or not last.router_correction:
        return {}
    layers = range(config.num_hidden_layers, config.num_hidden_layers + config.mtp_layers)
    name = "mlp.router.e_score_correction_bias"
    return {f"model.layers.{index}.{name}": (last.num_experts,) for index in layers}


def mtp_parameters(config: ModelConfig) -> int:
    """Without the copies of embedding and head that some checkpoints store again."""
    return sum(prod(shape) for shape in mtp_tensors(config).values())
