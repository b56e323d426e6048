"""What serving a trace will hold, asked before anything is loaded."""

from collections.abc import Iterator

from llmprof.costs.cache_access import kv_access
from llmprof.costs.kv_cache import kv_bytes_per_token
from llmprof.costs.largest_step import chunked_prefill
from llmprof.costs.memory import MemoryNeed, peak_activation_bytes
from llmprof.costs.options import CostOptions, options_from
from llmprof.costs.row_buckets import buckets_of
from llmprof.costs.tensor_parallel import shard_of
from llmprof.costs.weight_layout import laid_out
from llmprof.engine.kv_cache import PoolPlan, plan_pool, stored_dtype
from llmprof.engine.request_trace import Request, longest_sequence, make_trace
from llmprof.schema.cost import Phase, SequenceShape, StepShape
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import AttentionKind, BatchingPolicy, KvLayout, RunConfig


def cost_options_on_paper(model: ModelConfig, config: RunConfig, dtype: str) -> CostOptions:
    """The options of a run that computes in `dtype`, before an engine exists.

    Fused attention is taken to read the cache where it is when it decodes.
    """
    flash = config.attention.kind is AttentionKind.FLASH
    return options_from(
        config,
        compute_dtype=dtype,
        kv_dtype=stored_dtype(config.kv_cache.dtype, dtype),
        head_dim=model.head_dim,
        tensor_parallel=config.parallel.tensor,
        kv_access=kv_access(config, decode_kernel=flash),
        row_buckets=buckets_of(config),
    )


def serving_memory(model: ModelConfig, config: RunConfig, dtype: str) -> MemoryNeed:
    """Weights, the store of the KV cache, and the activations of the largest step.

    Raises:
        InputError: a trace that cannot be read.
        CapabilityError: `kv_cache.memory_bytes` does not hold a single block.
    """
    trace = make_trace(config.workload)
    options = cost_options_on_paper(model, config, dtype)
    token_bytes = kv_bytes_per_token(
        model, options.kv_bytes_per_number, tensor_parallel=options.tensor_parallel
    )
    plan = plan_pool(
        config.kv_cache,
        num_seats=min(config.batching.max_sequences, len(trace)),
        max_tokens=longest_sequence(trace),
        bytes_per_token=token_bytes,
        scratch=bool(options.row_buckets),
    )
    return MemoryNeed(
        weight_bytes=laid_out(
            shard_of(model, config.parallel.tensor), config.weights, dtype
        ).stored_bytes,
        kv_bytes=plan.stored_blocks * plan.block_tokens * token_bytes,
        activation_bytes=max(
            peak_activation_bytes(model, step, options)
            for step in _largest_steps(config, trace, plan)
        ),
    )


def _largest_steps(
    config: RunConfig, trace: tuple[Request, ...], plan: PoolPlan
) -> Iterator[StepShape]:
    """The largest prefill, and the decode step of as many at their longest as the store holds.

    A full batch of prompts starts together, or one fills a step of a longer sequence. Decoding is the
    larger of both where attention gathers what is cached, or without a cache computes it again.
    """
    seats, longest = plan.num_seats, plan.max_tokens
    cached = config.kv_cache.layout is not KvLayout.NONE
    if config.batching.policy is not BatchingPolicy.STATIC:
        most = config.batching.max_step_tokens
        yield chunked_prefill(sequences=seats, tokens=longest, max_step_tokens=most)
    else:
        prompt = max(request.prompt_tokens for request in trace)
        whole = SequenceShape(new_tokens=prompt if cached else longest, cached_tokens=0)
        # one by one: a served prompt is attended to by itself, whatever the cache
        yield StepShape(phase=Phase.PREFILL, sequences=seats * (whole,), logit_rows=seats)
    if cached:
        held = plan.num_blocks * plan.block_tokens // longest
        count = max(1, min(seats, held))
        fullest = SequenceShape(count=count, new_tokens=1, cached_tokens=longest - 1)
        yield StepShape(phase=Phase.DECODE, sequences=(fullest,), logit_rows=count)
