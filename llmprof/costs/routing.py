"""How many experts of a layer the tokens of a step choose."""

from collections.abc import Sequence

from llmprof.schema.cost import ExpertsRead
from llmprof.schema.layers import ExpertMlp


def experts_of_step(shape: ExpertMlp, tokens: int, read: Sequence[ExpertsRead]) -> float:
    """As steps of so many tokens read them, where such steps ran; else as they would on average."""
    seen = next((one.experts for one in read if one.tokens == tokens), None)
    if seen is None:
        return expected_experts(shape.num_experts, shape.experts_per_token, tokens)
    return seen


def expected_experts(num_experts: int, per_token: int, tokens: int) -> float:
    """Different experts that `tokens` tokens choose, each `per_token` of them, on average.

    Every set of experts is taken to be as likely as any other, and every token to choose for
    itself: E (1 - (1 - k / E)^T). Real routing is skewed and hits fewer; one token hits exactly k.
    """
    return num_experts * (1 - (1 - per_token / num_experts) ** tokens)
