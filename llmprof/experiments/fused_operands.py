"""What the kernels of a fused decode step are given, beside the weights that a benchmark streams."""

from collections.abc import Callable
from typing import Final

import torch

from llmprof.ceilings.pool import random_tensor
from llmprof.ceilings.weight_stream import Weight
from llmprof.engine.kernels.fused import fused_kernels
from llmprof.engine.linear import Linear
from llmprof.schema.cost import OpCost, OpGroup
from llmprof.schema.model import ModelConfig

Product = Callable[[torch.Tensor], torch.Tensor]

_ADDED: Final = (OpGroup.OUTPUT_PROJECTION, OpGroup.DOWN_PROJECTION)
_BESIDE: Final = {
    OpGroup.OUTPUT_PROJECTION: "output_projection.residual",
    OpGroup.DOWN_PROJECTION: "down_projection.residual",
    OpGroup.GATE_UP_PROJECTION: "activation",
}
"""Ops that have a kernel of their own where the product before them does not take them in."""


def takes_in_all(group: OpGroup, ops: tuple[OpCost, ...]) -> bool:
    """Whether a fused step's kernel of `group` does all that follows the product, by the step's ops."""
    return _BESIDE.get(group) not in {op.name for op in ops}


def fused_product(group: OpGroup, model: ModelConfig, rows: int, weight: Weight) -> Product:
    """The kernel of `group`, as a function of activations [rows, in_features].

    As in a step, a norm is given the squares that the product before it left. A height that is no
    gate and up together has a bare product: it only tells how much a call should read.
    """
    projection = Linear(weight)
    out_features, in_features = projection.shape
    kernels, stored = fused_kernels(), projection.stored
    dtype, device = weight.dtype, str(weight.device)
    if group in _ADDED:
        total = random_tensor((rows, out_features), device, dtype)
        return lambda x: kernels.added_product_(total, x, *stored)
    gains = random_tensor((in_features,), device, dtype)
    squares = torch.full((1, rows), float(in_features), device=device)
    norm = (squares, gains, model.rms_norm_eps, model.norm_gain_offset)
    if group is not OpGroup.GATE_UP_PROJECTION:
        return lambda x: kernels.normed_product(x, *norm, *stored)
    if out_features % 2:
        return projection
    return lambda x: kernels.gated_product(x, *norm, *stored, model.activation)
