"""Tokens that a step is worth to its user: neither padding nor tokens that are computed again."""

from collections import Counter

from llmprof.schema.cost import Phase
from llmprof.schema.run import Round, StepSample


def tokens_by_step(one: Round) -> tuple[int, ...]:
    """Per step: prompt tokens of a prefill, output tokens of a decode, both of a mixed step.

    Without a KV cache a step computes every earlier token of its sequences again: what it is worth
    is not what it computes.
    """
    output = Counter(step for request in one.requests for step in request.token_steps)
    return tuple(_tokens(one, index, sample, output) for index, sample in enumerate(one.steps))


def _tokens(one: Round, index: int, sample: StepSample, output: Counter[int]) -> int:
    shape = sample.shape
    if shape.phase == Phase.DECODE:
        return output[index] if one.requests else shape.logit_rows
    if shape.phase == Phase.MIXED and one.requests and not shape.cached_tokens:
        return _started_and_continued(one, index)
    return shape.new_tokens - (sample.batch.padding_tokens if sample.batch else 0)


def _started_and_continued(one: Round, index: int) -> int:
    """A mixed step without a cache: whole prompts of those that start, one token of the others."""
    tokens = 0
    for request in one.requests:
        if index in request.token_steps:
            tokens += request.prompt_tokens if request.token_steps[0] == index else 1
    return tokens
