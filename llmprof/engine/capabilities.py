"""What this engine can do: a switch that it does not have is refused, never ignored."""

from collections.abc import Iterator, Sequence

from llmprof.costs.fusion import fused_rows_of
from llmprof.engine.kernels.fused import fused_trouble
from llmprof.engine.kernels.packed import packed_trouble
from llmprof.engine.request_trace import Request
from llmprof.engine.runnable import check_rotation
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import (
    AttentionBackend,
    BatchingPolicy,
    ContextKind,
    ExecutionMode,
    Fusion,
    KvDtype,
    KvLayout,
    Quantization,
    RunConfig,
    WeightsSettings,
    WorkloadKind,
)


def check_capabilities(config: RunConfig, *, ranks: int = 1) -> None:
    """Refuse what processes that share out a model cannot do; `ranks` of them are there.

    Raises:
        CapabilityError: with the reason.
    """
    tensor = config.parallel.tensor
    if tensor != ranks:
        raise CapabilityError(
            f"parallel.tensor={tensor} is for `llmprof run` alone, which torchrun starts "
            f"{tensor} times",
            remedy="Set parallel.tensor=1",
        )
    if tensor == 1:
        return
    for reason, remedy in _not_shared_out(config):
        raise CapabilityError(f"with parallel.tensor={tensor}, {reason}", remedy=remedy)


def _not_shared_out(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Why not, and what to do."""
    mode, weights = config.execution.mode, config.weights
    if mode is not ExecutionMode.EAGER:
        yield (
            f"execution.mode={mode.value} is not available: replayed steps that hold collectives "
            "have not been shown to be right",
            "Set execution.mode=eager",
        )
    if weights.group_size == "channel" or weights.quantization is Quantization.FP8:
        setting = "quantization=fp8" if weights.group_size is None else "group_size=channel"
        yield (
            f"weights.{setting} is not available: the scale of a row that is cut in pieces is "
            "another one in each",
            "Set weights.quantization=int8 and weights.group_size=32, 64 or 128",
        )
    if config.workload.arrival_rate_per_s is not None:
        yield (
            "workload.arrival_rate_per_s is not available: each rank would admit requests by a "
            "clock of its own",
            "Leave it out: every request is there at the start",
        )
    if config.measure.confirm:
        yield (
            "measure.confirm is not available: interventions change one process alone",
            "Leave it out",
        )
    if config.device.startswith("cuda:"):
        yield (f"device={config.device} is one GPU for all", "Set device=cuda: each takes its own")


def check_weights(weights: WeightsSettings, device: str) -> None:
    """Refuse a weight format that the device has no kernel for, and settings that do nothing.

    Raises:
        CapabilityError: with the reason.
        InputError: a setting that belongs to another format.
    """
    quantization = weights.quantization
    if quantization is Quantization.NONE and weights.group_size is not None:
        raise InputError(
            f"weights.group_size={weights.group_size} belongs to quantized weights, and "
            "weights.quantization is none",
            remedy="Set weights.quantization=int8 or int4",
        )
    if quantization is Quantization.FP8 and weights.group_size not in (None, "channel"):
        raise InputError(
            f"weights.group_size={weights.group_size} belongs to int8 and int4: fp8 weights have one "
            "scale per output channel",
            remedy="Leave weights.group_size out",
        )
    if quantization is Quantization.INT4 and weights.group_size == "channel":
        raise InputError(
            "weights.group_size=channel needs 8 bits: 16 codes for a whole row lose the model",
            remedy="Set weights.group_size=32, 64 or 128",
        )
    if quantization is not Quantization.INT4 and weights.symmetric:
        raise InputError(
            f"weights.symmetric=true belongs to int4, and weights.quantization is "
            f"{quantization.value}",
            remedy="Set weights.quantization=int4",
        )
    trouble = None if quantization is Quantization.NONE else packed_trouble(device)
    if trouble is not None:
        raise CapabilityError(
            f"weights.quantization={quantization.value} is not available on {device}: {trouble}",
            remedy="Set weights.quantization=none",
        )


def check_attention(config: RunConfig, device: str) -> None:
    """Refuse a library's kernels where they cannot be, before anything is loaded or tried.

    Raises:
        CapabilityError: with the reason.
    """
    backend = config.attention.backend
    a_library = backend in (AttentionBackend.VARLEN, AttentionBackend.FLASHINFER)
    if a_library and device == "cpu":
        raise CapabilityError(
            f"attention.backend={backend.value} is not available on {device}: it is made of "
            "kernels for GPUs",
            remedy="Set attention.backend=auto or native, or device=cuda",
        )
    if a_library and config.execution.mode is ExecutionMode.COMPILED:
        raise CapabilityError(
            f"attention.backend={backend.value} is not available with execution.mode=compiled: its "
            "kernels have not been shown to be right in a step that torch.compile made",
            remedy="Set attention.backend=auto or native, or execution.mode=cuda_graph",
        )


def check_fused(config: RunConfig, dtype: str, device: str) -> None:
    """Refuse fused kernels that were asked for and cannot be, before anything is loaded.

    Raises:
        CapabilityError: with the reason.
    """
    if config.execution.fused is Fusion.ON:
        fused_rows_of(config.execution, dtype, trouble=fused_trouble(device))


def check_workload(config: RunConfig, model: ModelConfig) -> None:
    """Refuse a workload that the model or the cache cannot hold, and settings that do nothing.

    Raises:
        InputError: too many tokens, or settings that contradict each other.
    """
    for problem, remedy in _contradictions(config):
        raise InputError(problem, remedy=remedy)
    if config.workload.kind is WorkloadKind.FIXED:
        check_length(model, config.workload.prompt_tokens, config.workload.output_tokens)


def _contradictions(config: RunConfig) -> Iterator[tuple[str, str]]:
    """What is wrong, and what to do."""
    kv, workload, batching = config.kv_cache, config.workload, config.batching
    serves = serves_requests(config)
    if kv.layout is KvLayout.NONE and kv.dtype is not KvDtype.AS_WEIGHTS:
        yield f"kv_cache.dtype={kv.dtype.value} needs a cache", "Set kv_cache.layout=contiguous"
    if kv.layout is KvLayout.NONE and kv.memory_bytes is not None:
        yield "kv_cache.memory_bytes needs a cache", "Set kv_cache.layout=contiguous or paged"
    if workload.context is ContextKind.SYNTHETIC:
        yield from _synthetic_contradictions(config)
    if serves and config.measure.steps_per_round is not None:
        yield (
            "measure.steps_per_round cuts fixed work, and this run serves requests to their end",
            "Remove it, or lower workload.requests",
        )
    continuous = batching.policy is BatchingPolicy.CONTINUOUS
    if continuous and batching.max_step_tokens < batching.max_sequences:
        yield (
            f"batching.max_step_tokens={batching.max_step_tokens} is less than one token for each "
            f"of batching.max_sequences={batching.max_sequences}",
            "Raise the one or lower the other",
        )


def _synthetic_contradictions(config: RunConfig) -> Iterator[tuple[str, str]]:
    if config.kv_cache.layout is KvLayout.NONE:
        yield (
            "workload.context=synthetic fills a KV cache, and kv_cache.layout=none has none",
            "Set workload.context=real or kv_cache.layout=contiguous",
        )
    if serves_requests(config):
        yield (
            "workload.context=synthetic measures decode steps alone, and requests start with a "
            "prompt",
            "Set workload.context=real, or workload.kind=fixed with batching.policy=static",
        )
    if config.workload.output_tokens < 2:
        yield (
            "workload.context=synthetic measures decode steps alone, and a single output token "
            "needs none",
            "Set workload.output_tokens to 2 or more",
        )


def serves_requests(config: RunConfig) -> bool:
    """Whether a scheduler runs requests, rather than one batch of fixed work."""
    fixed = config.workload.kind is WorkloadKind.FIXED
    return not fixed or config.batching.policy is BatchingPolicy.CONTINUOUS


def check_trace(model: ModelConfig, trace: Sequence[Request], *, ranks: int = 1) -> None:
    """Refuse a trace with a request that is longer than the model has positions.

    Raises:
        InputError: names the first one, with the numbers.
        CapabilityError: one that grows beyond the original context of longrope, or is within it
            beside others that are not; or one that arrives later, where `ranks` step together.
    """
    longest = model.max_position_embeddings
    most = max((request.prompt_tokens + request.output_tokens for request in trace), default=0)
    for request in trace:
        if request.arrival_s and ranks > 1:
            raise CapabilityError(
                f"request {request.index} of the trace arrives after the start, and with "
                f"parallel.tensor={ranks} each rank would admit it by a clock of its own",
                remedy="Leave arrival times out of workload.file",
            )
        tokens = request.prompt_tokens + request.output_tokens
        check_rotation(model, request.prompt_tokens, most)
        if tokens > longest:
            raise InputError(
                f"request {request.index} of the trace has {tokens} tokens, but {model.name} has "
                f"{longest} positions",
                remedy="Lower workload.lengths.prompt.high and workload.lengths.output.high, or "
                "shorten the requests in workload.file",
            )


def check_length(model: ModelConfig, prompt_tokens: int, output_tokens: int) -> None:
    """Refuse more tokens than the model has positions.

    Raises:
        InputError: with the numbers.
        CapabilityError: a sequence that grows beyond the original context of longrope.
    """
    longest = model.max_position_embeddings
    check_rotation(model, prompt_tokens, prompt_tokens + output_tokens)
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
