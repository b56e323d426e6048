"""What a layer does with the products of its queries and keys, beside the causal mask."""

import math
from dataclasses import dataclass

from llmprof.schema.layers import SoftmaxAttention
from llmprof.schema.model import ModelConfig


@dataclass(frozen=True, slots=True)
class ScoreRule:
    """The same for all heads of a layer."""

    scale: float | None = None
    """Of the products; None: 1 / sqrt(head_dim)."""
    cap: float | None = None
    """Scores s become cap * tanh(s / cap), before any mask (Gemma 2)."""
    window: int | None = None
    """Tokens that a query sees, its own included; None: all before it."""

    def scale_for(self, head_dim: int) -> float:
        return 1 / math.sqrt(head_dim) if self.scale is None else self.scale

    def hides(self, attended_tokens: int) -> int | None:
        """The window, where it hides any of so many tokens."""
        return self.window if self.window is not None and attended_tokens > self.window else None


PLAIN = ScoreRule()


def score_rules(model: ModelConfig) -> tuple[ScoreRule, ...]:
    """One for each layer; none where all are plain."""
    shapes = [layer.attention for layer in model.layers]
    windows = [one.window if isinstance(one, SoftmaxAttention) else None for one in shapes]
    scale = model.query_scale
    if scale is not None and math.isclose(scale, 1 / math.sqrt(model.head_dim)):
        scale = None  # as everywhere: kernels that know no other scale will do
    rules = tuple(ScoreRule(scale, model.score_cap, window) for window in windows)
    return () if set(rules) == {PLAIN} else rules
