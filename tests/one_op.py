"""A decode step of one operator, whose cost is whatever a test says."""

from llmprof.schema.cost import (
    ByteTraffic,
    OpCost,
    OpGroup,
    Phase,
    SequenceShape,
    StepCost,
    StepShape,
)


def step_of_one_op(weights: float, *, activations: float = 0.0, flops: float = 0.0) -> StepCost:
    """The LM head, moving so many bytes and doing so many FLOPs."""
    shape = StepShape(
        phase=Phase.DECODE,
        sequences=(SequenceShape(new_tokens=1, cached_tokens=1),),
        logit_rows=1,
    )
    op = OpCost(
        name="lm_head",
        group=OpGroup.LM_HEAD,
        calls=1,
        compute_dtype="bf16",
        flops=flops,
        flops_dense=flops,
        flops_causal=flops,
        traffic=ByteTraffic(weights=weights, activations=activations),
    )
    return StepCost(shape=shape, ops=(op,))
