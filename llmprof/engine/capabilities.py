"""What this engine can do: a switch that it does not have is refused, never ignored."""

from collections.abc import Iterator, Sequence

from llmprof.errors import CapabilityError, InputError
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import (
    BatchingPolicy,
    ContextKind,
    ExecutionMode,
    KvDtype,
    KvLayout,
    Quantization,
    RunConfig,
    WorkloadKind,
)


def check_capabilities(config: RunConfig) -> None:
    """Refuse the first switch that is set to something the engine does not have.

    Raises:
        CapabilityError: names the key, its value and what is possible.
    """
    for key, value, possible in _missing(config):
        raise CapabilityError(
            f"{key}={value} is not available in this version of the engine",
            remedy=f"Possible: {key}={possible}",
        )


def _missing(config: RunConfig) -> Iterator[tuple[str, object, str]]:
    quantization = config.weights.quantization
    if quantization is not Quantization.NONE:
        yield "weights.quantization", quantization.value, "none"
    if config.weights.group_size is not None:
        yield "weights.group_size", config.weights.group_size, "null"
    if config.kv_cache.layout is KvLayout.PAGED:
        yield "kv_cache.layout", config.kv_cache.layout.value, "none or contiguous"
    if config.kv_cache.dtype is not KvDtype.AS_WEIGHTS:
        yield "kv_cache.dtype", config.kv_cache.dtype.value, "as_weights"
    if config.kv_cache.memory_bytes is not None:
        yield "kv_cache.memory_bytes", config.kv_cache.memory_bytes, "null"
    if config.batching.policy is not BatchingPolicy.STATIC:
        yield "batching.policy", config.batching.policy.value, "static"
    if config.execution.mode is not ExecutionMode.EAGER:
        yield "execution.mode", config.execution.mode.value, "eager"
    if config.parallel.tensor != 1:
        yield "parallel.tensor", config.parallel.tensor, "1"
    if config.workload.kind is not WorkloadKind.FIXED:
        yield "workload.kind", config.workload.kind.value, "fixed"


def check_workload(config: RunConfig, model: ModelConfig) -> None:
    """Refuse a workload that the model or the cache cannot hold.

    Raises:
        InputError: too many tokens, or settings that contradict each other.
    """
    workload = config.workload
    check_length(model, workload.prompt_tokens, workload.output_tokens)
    if workload.context is ContextKind.SYNTHETIC:
        if config.kv_cache.layout is KvLayout.NONE:
            raise InputError(
                "workload.context=synthetic fills a KV cache, and kv_cache.layout=none has none",
                remedy="Set workload.context=real or kv_cache.layout=contiguous",
            )
        if workload.output_tokens < 2:
            raise InputError(
                "workload.context=synthetic measures decode steps alone, and a single output token "
                "needs none",
                remedy="Set workload.output_tokens to 2 or more",
            )


def check_length(model: ModelConfig, prompt_tokens: int, output_tokens: int) -> None:
    """Refuse more tokens than the model has positions.

    Raises:
        InputError: with the numbers.
    """
    longest = model.max_position_embeddings
    if prompt_tokens + output_tokens > longest:
        raise InputError(
            f"{prompt_tokens} prompt tokens and {output_tokens} output tokens are "
            f"{prompt_tokens + output_tokens}, but {model.name} has {longest} positions",
            remedy="Shorten the prompt or the output",
        )


def check_prompt(model: ModelConfig, prompt_ids: Sequence[int]) -> None:
    """Refuse ids that the model cannot look up.

    Raises:
        InputError: there are none, or one is beyond the vocabulary.
    """
    if not prompt_ids:
        raise InputError("the prompt has no tokens", remedy="Give at least one character")
    if max(prompt_ids) >= model.vocab_size:
        raise InputError(
            f"the tokenizer gives id {max(prompt_ids)}, but {model.name} has a vocabulary of "
            f"{model.vocab_size}",
            remedy="Put the tokenizer that the model was trained with beside it",
        )
