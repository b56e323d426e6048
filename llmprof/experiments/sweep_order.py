"""How long a cell takes at least: from shapes and cached ceilings, to measure the cheapest first."""

from collections.abc import Iterator

from llmprof.analysis.op_roof import last_level_cache_bytes, link_time_s
from llmprof.analysis.rates import Rates
from llmprof.architectures.source import ModelSource
from llmprof.costs.fixed_work import step_shapes
from llmprof.costs.step import step_cost
from llmprof.costs.weight_layout import laid_out
from llmprof.engine.capabilities import serves_requests
from llmprof.engine.dtypes import compute_dtype
from llmprof.engine.request_trace import make_trace
from llmprof.engine.serving_memory import cost_options_on_paper
from llmprof.errors import LlmprofError
from llmprof.schema.ceilings import Ceilings, MemoryOp
from llmprof.schema.cost import Phase, SequenceShape, StepShape
from llmprof.schema.settings import KvLayout, RunConfig


def predicted_round_s(config: RunConfig, source: ModelSource, ceilings: Ceilings) -> float | None:
    """Least time of one round, no fixed cost in it.

    None where the settings cannot run anyway, or no ceiling is known.

    Of decode steps the one in the middle stands for all. A trace counts as its prompts one by one
    and decode steps with every place taken.
    """
    try:
        dtype = compute_dtype(config.weights.dtype, source.manifest).name
        weights = laid_out(source.config, config.weights, dtype)
        options = cost_options_on_paper(source.config, config, dtype)
        shapes = tuple(_round_shapes(config))
    except LlmprofError:  # the cell itself will say why
        return None
    rates = _rates(ceilings, dtype)
    if rates is None:
        return None
    cache = last_level_cache_bytes(ceilings.environment, ceilings.bandwidth)
    return sum(
        count * link_time_s(step_cost(source.config, weights, shape, options).ops, rates, cache)
        for count, shape in shapes
    )


def _rates(ceilings: Ceilings, dtype: str) -> Rates | None:
    """Memory by its slowest level; arithmetic by the best shape of each dtype."""
    best: dict[str, float] = {}
    for one in ceilings.compute:
        best[one.dtype] = max(best.get(one.dtype, 0.0), one.flops_per_s)
    reads = [one.bytes_per_s for one in ceilings.bandwidth if one.op is MemoryOp.READ]
    if not reads or not best:
        return None
    return Rates(
        read_bytes_per_s=min(reads),
        matmul_flops_per_s=best.get(dtype) or max(best.values()),
        matmul_dtype=dtype,
        other_flops_per_s=best,
    )


def _round_shapes(config: RunConfig) -> Iterator[tuple[float, StepShape]]:
    """Steps of a round, and how often each counts."""
    if serves_requests(config):
        yield from _trace_shapes(config)
        return
    shapes = step_shapes(config)
    for phase in Phase:
        of_phase = [shape for shape in shapes if shape.phase is phase]
        if of_phase:
            yield len(of_phase), of_phase[len(of_phase) // 2]


def _trace_shapes(config: RunConfig) -> Iterator[tuple[float, StepShape]]:
    trace = make_trace(config.workload)
    seats = min(config.batching.max_sequences, len(trace))
    for request in trace:
        yield 1, _shape(Phase.PREFILL, 1, request.prompt_tokens, 0)
    outputs = sum(request.output_tokens for request in trace)
    context = sum(request.max_cached_tokens for request in trace) // len(trace)
    cached = config.kv_cache.layout is not KvLayout.NONE
    new, past = (1, context) if cached else (context + 1, 0)
    yield outputs / seats, _shape(Phase.DECODE, seats, new, past)


def _shape(phase: Phase, count: int, new: int, cached: int) -> StepShape:
    sequence = SequenceShape(count=count, new_tokens=new, cached_tokens=cached)
    return StepShape(phase=phase, sequences=(sequence,), logit_rows=count)
