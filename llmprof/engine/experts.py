"""A mixture of experts (Shazeer et al. 2017): each token passes the few that its router chooses.

The rows of a step are put in the order of their experts, and each expert that any token chose
multiplies its own rows once: the weights of the others are not read.
"""

from dataclasses import dataclass, field

import torch

from llmprof.engine.feed_forward import Gate
from llmprof.engine.linear import Linear
from llmprof.engine.norm import RmsNorm
from llmprof.engine.normed_product import norm_of
from llmprof.engine.probe import Probe
from llmprof.engine.rank_group import RankGroup
from llmprof.engine.residual import ResidualStream
from llmprof.engine.routing import ExpertChoice, RoutedExperts
from llmprof.schema.cost import OpGroup


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """One that every token passes, scaled by a share of its own (Qwen2-MoE)."""

    gate_up: Linear
    """Rows: gate, then up."""
    down: Linear
    share: Linear
    """[1, hidden_size], before the sigmoid."""
    gate: Gate

    def __call__(self, normed: torch.Tensor, probe: Probe) -> torch.Tensor:
        """[rows, hidden_size], new."""
        probe.group_begin(OpGroup.GATE_UP_PROJECTION)
        gate_up, share = self.gate_up(normed), self.share(normed).sigmoid_()
        probe.group_end()

        probe.group_begin(OpGroup.ACTIVATION)
        inner = self.gate(gate_up)
        probe.group_end()

        probe.group_begin(OpGroup.DOWN_PROJECTION)
        out = self.down(inner).mul_(share)
        probe.group_end()
        return out


@dataclass(frozen=True, slots=True)
class ExpertFeedForward:
    router: Linear
    gate_up: tuple[Linear, ...]
    """Of each expert; rows: gate, then up."""
    down: tuple[Linear, ...]
    gate: Gate
    per_token: int
    normalized: bool
    """The weights of a token's experts add up to one."""
    layer: int
    choice: ExpertChoice
    shared: SharedExpert | None = None
    """Beside the chosen ones."""
    routed: RoutedExperts = field(default_factory=RoutedExperts)
    """Told how many experts each step read."""
    ranks: RankGroup | None = None
    """That hold the other inner channels of every expert."""

    @property
    def projections(self) -> tuple[Linear, ...]:
        beside = self.shared
        of_shared = () if beside is None else (beside.gate_up, beside.share, beside.down)
        return self.router, self.gate_up[0], self.down[0], *of_shared

    def add_to(self, stream: ResidualStream, norm: RmsNorm, probe: Probe) -> None:
        normed = norm_of(stream, norm, probe)
        beside = None if self.shared is None else self.shared(normed, probe)
        probe.group_begin(OpGroup.GATE_UP_PROJECTION)
        ids, weights = self._route(normed)
        chosen = ids.flatten()
        order = chosen.argsort(stable=True)
        tokens = order // self.per_token
        rows = torch.bincount(chosen, minlength=len(self.gate_up)).tolist()
        hit = [expert for expert, count in enumerate(rows) if count]
        self.routed.add(len(normed), len(hit))
        inputs = torch.split(normed.index_select(0, tokens), [rows[expert] for expert in hit])
        gate_ups = [self.gate_up[expert](part) for expert, part in zip(hit, inputs, strict=True)]
        probe.group_end()

        probe.group_begin(OpGroup.ACTIVATION)
        inner = [self.gate(gate_up) for gate_up in gate_ups]
        probe.group_end()

        probe.group_begin(OpGroup.DOWN_PROJECTION)
        parts = [self.down[expert](part) for expert, part in zip(hit, inner, strict=True)]
        out = torch.cat(parts).mul_(weights.flatten().index_select(0, order).unsqueeze(1))
        mixed = torch.zeros_like(normed) if beside is None else beside
        mixed.index_add_(0, tokens, out)
        if self.ranks is not None:
            self.ranks.sum_inside(mixed, OpGroup.DOWN_PROJECTION, probe)
        stream.add(mixed)
        probe.group_end()

    def _route(self, normed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Experts of each row and their weights, both [rows, per_token]; probabilities in fp32."""
        shares = torch.softmax(self.router(normed), dim=-1, dtype=torch.float32)
        ids = self.choice(shares, self.per_token, self.layer)
        weights = shares.gather(1, ids)
        if self.normalized:
            weights /= weights.sum(dim=-1, keepdim=True)
        return ids, weights.to(normed.dtype)
