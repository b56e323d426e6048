"""The arithmetic side of a step's roofline.

Source: Williams, Waterman, Patterson 2009, "Roofline".
"""

from collections.abc import Callable

from llmprof.schema.cost import StepCost


def compute_s(cost: StepCost, flops_per_s: Callable[[str], float]) -> float:
    """All FLOPs of the step, each op's at the rate of its dtype."""
    return sum(op.flops / flops_per_s(op.compute_dtype) for op in cost.ops)
