"""The steps of a round of fixed work, in their order: known from the settings alone."""

from llmprof.schema.cost import Phase, SequenceShape, StepShape
from llmprof.schema.settings import ContextKind, KvLayout, RunConfig


def step_shapes(config: RunConfig) -> tuple[StepShape, ...]:
    """The steps of a round: prefill gives the first output token, each decode step one more.

    `measure.steps_per_round` caps the decode steps. A synthetic context leaves the prefill out.
    """
    workload, cap = config.workload, config.measure.steps_per_round
    decodes = workload.output_tokens - 1
    decodes = decodes if cap is None else min(decodes, cap)
    prompt = _shape(Phase.PREFILL, workload.batch, workload.prompt_tokens, 0)
    steps = () if workload.context is ContextKind.SYNTHETIC else (prompt,)
    contexts = range(workload.prompt_tokens, workload.prompt_tokens + decodes)
    if config.kv_cache.layout is KvLayout.NONE:
        repeated = (_shape(Phase.DECODE, workload.batch, past + 1, 0) for past in contexts)
        return (*steps, *repeated)
    return (*steps, *(_shape(Phase.DECODE, workload.batch, 1, past) for past in contexts))


def _shape(phase: Phase, batch: int, new_tokens: int, cached_tokens: int) -> StepShape:
    sequence = SequenceShape(count=batch, new_tokens=new_tokens, cached_tokens=cached_tokens)
    return StepShape(phase=phase, sequences=(sequence,), logit_rows=batch)
