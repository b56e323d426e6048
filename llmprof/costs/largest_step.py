"""The step of a run that needs the most memory beside weights and cache."""

from llmprof.schema.cost import Phase, SequenceShape, StepShape


def chunked_prefill(*, sequences: int, tokens: int, max_step_tokens: int) -> StepShape:
    """As many prompt tokens as a step takes: several short prompts, or the end of a long one.

    Args:
        sequences: that may start together; each has a row of logits.
        tokens: of each.
        max_step_tokens: `batching.max_step_tokens`.
    """
    if tokens > max_step_tokens:
        end = SequenceShape(new_tokens=max_step_tokens, cached_tokens=tokens - max_step_tokens)
        pieces: tuple[SequenceShape, ...] = (end,)
    else:
        whole, rest = divmod(min(max_step_tokens, sequences * tokens), tokens)
        pieces = whole * (SequenceShape(new_tokens=tokens, cached_tokens=0),)
        if rest:
            pieces += (SequenceShape(new_tokens=rest, cached_tokens=0),)
    return StepShape(phase=Phase.PREFILL, sequences=pieces, logit_rows=sequences)
