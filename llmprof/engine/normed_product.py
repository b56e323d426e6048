"""A projection of the residual stream's norm: two kernels, or one where the rows are few."""

from typing import Final

import torch

from llmprof.engine.kernels.fused import fused_kernels
from llmprof.engine.linear import Linear
from llmprof.engine.norm import RmsNorm
from llmprof.engine.probe import Probe
from llmprof.engine.residual import ResidualStream
from llmprof.schema.cost import OpGroup

NORMED_KERNEL: Final = "llmprof::triton_normed_matvec"
GATED_KERNEL: Final = "llmprof::triton_gated_matvec"


def norm_of(stream: ResidualStream, norm: RmsNorm, probe: Probe) -> torch.Tensor:
    """The norm of the stream alone, [rows, hidden_size], new."""
    probe.group_begin(OpGroup.NORM)
    found = norm(stream.x)
    probe.group_end()
    return found


def normed_product(
    stream: ResidualStream, norm: RmsNorm, projection: Linear, group: OpGroup, probe: Probe
) -> torch.Tensor:
    """[rows, out_features], new; a norm that is part of the product belongs to its `group`."""
    if not stream.fused:
        x = norm_of(stream, norm, probe)
        probe.group_begin(group)
        y = projection(x)
        probe.group_end()
        return y
    probe.group_begin(group)
    y = fused_kernels().normed_product(
        stream.x, stream.squares, norm.gain, norm.eps, norm.offset, *projection.stored
    )
    probe.group_end()
    return y


def gated_product(
    stream: ResidualStream, norm: RmsNorm, gate_up: Linear, activation: str, probe: Probe
) -> torch.Tensor:
    """What the activated first half of a projection of the norm lets through of the second.

    Of a fused stream; `activation`: silu or gelu_tanh. Returns [rows, inner], new.
    """
    probe.group_begin(OpGroup.GATE_UP_PROJECTION)
    inner = fused_kernels().gated_product(
        stream.x, stream.squares, norm.gain, norm.eps, norm.offset, *gate_up.stored, activation
    )
    probe.group_end()
    return inner
