"""How many experts of a layer the tokens of a step choose."""


def expected_experts(num_experts: int, per_token: int, tokens: int) -> float:
    """Different experts that `tokens` tokens choose, each `per_token` of them, on average.

    Every set of experts is taken to be as likely as any other, and every token to choose for
    itself: E (1 - (1 - k / E)^T). Real routing is skewed and hits fewer; one token hits exactly k.
    """
    return num_experts * (1 - (1 - per_token / num_experts) ** tokens)
