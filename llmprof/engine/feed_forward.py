"""The feed-forward part of a layer: SwiGLU or GeGLU (Shazeer 2020), dense or split among experts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from llmprof.engine.linear import Linear
from llmprof.engine.norm import RmsNorm
from llmprof.engine.probe import Probe
from llmprof.engine.rank_group import RankGroup
from llmprof.engine.residual import add_, add_product_
from llmprof.schema.cost import OpGroup

Gate = Callable[[torch.Tensor], torch.Tensor]
"""Product of one half of a projection and the activated other, [rows, 2 * inner] -> [rows, inner]."""


class FeedForward(Protocol):
    @property
    def projections(self) -> tuple[Linear, ...]:
        """One of each kind that a token passes."""

    def add_to(self, x: torch.Tensor, normed: torch.Tensor, probe: Probe) -> None:
        """Add what comes of normed [rows, hidden_size] to the residual stream x, in place."""


@dataclass(frozen=True, slots=True)
class DenseFeedForward:
    gate_up: Linear
    """Rows: gate, then up."""
    down: Linear
    gate: Gate
    norm_after: RmsNorm | None = None
    """Of the result, before it is added (Gemma)."""
    ranks: RankGroup | None = None
    """That hold the other inner channels."""

    @property
    def projections(self) -> tuple[Linear, ...]:
        return self.gate_up, self.down

    def add_to(self, x: torch.Tensor, normed: torch.Tensor, probe: Probe) -> None:
        probe.group_begin(OpGroup.GATE_UP_PROJECTION)
        gate_up = self.gate_up(normed)
        probe.group_end()

        probe.group_begin(OpGroup.ACTIVATION)
        inner = self.gate(gate_up)
        probe.group_end()

        add_projected_(
            x, inner, self.down, self.norm_after, self.ranks, OpGroup.DOWN_PROJECTION, probe
        )


def add_projected_(
    x: torch.Tensor,
    inner: torch.Tensor,
    projection: Linear,
    norm: RmsNorm | None,
    ranks: RankGroup | None,
    group: OpGroup,
    probe: Probe,
) -> None:
    """Add what a block projects to the residual stream x, in place.

    Args:
        x: [rows, hidden_size].
        inner: [rows, in_features of the projection].
        projection: the block's last one.
        norm: of its result, before it is added (Gemma).
        ranks: that hold the other columns of the projection.
        group: of projection and addition.
        probe: told about them.
    """
    probe.group_begin(group)
    if ranks is None and norm is None:
        add_product_(x, projection, inner)
        probe.group_end()
        return
    out = projection(inner)
    if ranks is not None:
        ranks.sum_inside(out, group, probe)
    if norm is None:
        add_(x, out)
    probe.group_end()
    if norm is not None:
        _add_normed_(x, out, norm, group, probe)


def _add_normed_(
    x: torch.Tensor, out: torch.Tensor, norm: RmsNorm, group: OpGroup, probe: Probe
) -> None:
    """The addition belongs to `group`."""
    probe.group_begin(OpGroup.NORM)
    normed = norm(out)
    probe.group_end()
    probe.group_begin(group)
    add_(x, normed)
    probe.group_end()
