"""The feed-forward part of a layer: SwiGLU or GeGLU (Shazeer 2020), dense or split among experts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from llmprof.engine.linear import Linear
from llmprof.engine.norm import RmsNorm
from llmprof.engine.normed_product import gated_product, normed_product
from llmprof.engine.probe import Probe
from llmprof.engine.rank_group import RankGroup
from llmprof.engine.residual import ResidualStream
from llmprof.schema.cost import OpGroup

Gate = Callable[[torch.Tensor], torch.Tensor]
"""Product of one half of a projection and the activated other, [rows, 2 * inner] -> [rows, inner]."""


class FeedForward(Protocol):
    @property
    def projections(self) -> tuple[Linear, ...]:
        """One of each kind that a token passes."""

    def add_to(self, stream: ResidualStream, norm: RmsNorm, probe: Probe) -> None:
        """Add what comes of the stream's norm to the stream."""


@dataclass(frozen=True, slots=True)
class DenseFeedForward:
    gate_up: Linear
    """Rows: gate, then up."""
    down: Linear
    gate: Gate
    activation: str
    """What the gate activates by, where it is part of another kernel: silu or gelu_tanh."""
    norm_after: RmsNorm | None = None
    """Of the result, before it is added (Gemma)."""
    ranks: RankGroup | None = None
    """That hold the other inner channels."""

    @property
    def projections(self) -> tuple[Linear, ...]:
        return self.gate_up, self.down

    def add_to(self, stream: ResidualStream, norm: RmsNorm, probe: Probe) -> None:
        if stream.fused:
            inner = gated_product(stream, norm, self.gate_up, self.activation, probe)
        else:
            group = OpGroup.GATE_UP_PROJECTION
            gate_up = normed_product(stream, norm, self.gate_up, group, probe)
            probe.group_begin(OpGroup.ACTIVATION)
            inner = self.gate(gate_up)
            probe.group_end()
        group, after = OpGroup.DOWN_PROJECTION, self.norm_after
        add_projected(stream, inner, self.down, after, self.ranks, group, probe)


def add_projected(
    stream: ResidualStream,
    inner: torch.Tensor,
    projection: Linear,
    norm: RmsNorm | None,
    ranks: RankGroup | None,
    group: OpGroup,
    probe: Probe,
) -> None:
    """Add what a block projects to the residual stream.

    Args:
        stream: of [rows, hidden_size].
        inner: [rows, in_features of the projection].
        projection: the block's last one.
        norm: of its result, before it is added (Gemma).
        ranks: that hold the other columns of the projection.
        group: of projection and addition.
        probe: told about them.
    """
    probe.group_begin(group)
    if ranks is None and norm is None:
        stream.add_product(projection, inner)
        probe.group_end()
        return
    out = projection(inner)
    if ranks is not None:
        ranks.sum_inside(out, group, probe)
    if norm is None:
        stream.add(out)
    probe.group_end()
    if norm is not None:
        _add_normed(stream, out, norm, group, probe)


def _add_normed(
    stream: ResidualStream, out: torch.Tensor, norm: RmsNorm, group: OpGroup, probe: Probe
) -> None:
    """The addition belongs to `group`."""
    probe.group_begin(OpGroup.NORM)
    normed = norm(out)
    probe.group_end()
    probe.group_begin(group)
    stream.add(normed)
    probe.group_end()
