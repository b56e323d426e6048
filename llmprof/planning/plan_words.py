"""A plan's sum with its numbers in it, and what the plan takes for granted."""

from collections.abc import Iterator

from llmprof import units
from llmprof.costs.kv_cache import cached_numbers
from llmprof.costs.linear_state import state_bytes_per_sequence
from llmprof.planning.capacity import Capacity
from llmprof.planning.decode_forecast import has_compute_roof
from llmprof.schema.cost import KvRead
from llmprof.schema.layers import LatentAttention, SoftmaxAttention
from llmprof.schema.measurement import Caveat, Source
from llmprof.schema.model import ModelConfig
from llmprof.schema.plan import PlanRates
from llmprof.schema.settings import MAX_SEQUENCES, BatchingPolicy, KvLayout


def capacity_formula(capacity: Capacity, reserve_bytes: int, tokens: int) -> str:
    """Every number to the byte, so that a reader can check the sum."""
    sequences = capacity.most_sequences(tokens)
    activations = capacity.activation_bytes(max(1, sequences), tokens)
    room = capacity.budget_bytes - capacity.weight_bytes - activations
    each = capacity.sequence_bytes(tokens)
    exact = units.exact
    sum_ = (
        f"{exact(capacity.budget_bytes + reserve_bytes)} device - {exact(reserve_bytes)} reserve - "
        f"{exact(capacity.weight_bytes)} weights - {exact(activations)} activations = "
        f"{exact(room)} bytes for the cache"
    )
    if room < each:
        return f"{sum_}; one sequence of {exact(tokens)} tokens takes {exact(each)}: none fits"
    if not each:
        return f"{sum_}; nothing is cached: {exact(sequences)} sequences"
    if sequences == MAX_SEQUENCES:
        return f"{sum_}: room for more than {exact(sequences)} sequences of {exact(tokens)} tokens"
    if room // each != sequences:
        more = capacity.activation_bytes(sequences + 1, tokens)
        return (
            f"{sum_}: {exact(sequences)} sequences of {exact(tokens)} tokens take {exact(each)} each, "
            f"and one more would take the activations to {exact(more)}"
        )
    return f"{sum_} / {exact(each)} per sequence of {exact(tokens)} tokens = {exact(sequences)} sequences"


def assumptions(
    capacity: Capacity, rates: PlanRates | None, price_per_hour: float | None
) -> tuple[str, ...]:
    """In the order in which they matter."""
    found = [_room(capacity), _activations(capacity), *_copies(capacity)]
    if capacity.devices > 1:
        found.append(
            f"Sizes are those of one of {capacity.devices} devices; activations count whole on each"
        )
    if rates is not None:
        found.append(_speed(capacity, rates))
    if price_per_hour is not None:
        found.append(
            "Cost is of output tokens with every seat taken at a full context and no time for "
            "prefill: the least it can be"
        )
    return tuple(found)


def _room(capacity: Capacity) -> str:
    match capacity.options.kv_layout:
        case KvLayout.NONE:
            return "Without a cache every step computes its whole context again"
        case KvLayout.CONTIGUOUS:
            return "Every sequence reserves its whole context at once (kv_cache.layout: contiguous)"
        case KvLayout.PAGED:
            block = capacity.options.block_tokens
            return (
                f"Sequences hold whole blocks of {block} tokens (kv_cache.layout: paged), and all of "
                "them are at their full context at the same time"
            )


def _activations(capacity: Capacity) -> str:
    attention = capacity.options.attention.value
    if capacity.policy is BatchingPolicy.STATIC or capacity.options.kv_layout is KvLayout.NONE:
        return (
            f"Activations are those of one prefill of all sequences at their full context with "
            f"{attention} attention (batching.policy: static)"
        )
    return (
        f"Activations are those of a step with {units.exact(capacity.max_step_tokens)} prompt tokens "
        f"at most (batching.max_step_tokens), {attention} attention and a row of logits per sequence"
    )


def _copies(capacity: Capacity) -> Iterator[str]:
    """What is counted with the activations; copies are of one layer at a time."""
    if workspace := capacity.options.workspace_bytes:
        yield f"Activations include {units.byte_count(workspace)} of workspace for FlashInfer"
    if capacity.padding_bytes(1):
        yield "Activations include the block of cache that rows which pad a recorded step write to"
    access, chunked = capacity.options.kv_access, capacity.policy is BatchingPolicy.CONTINUOUS
    if access.decode is KvRead.GATHERED:
        yield (
            "Activations include a copy of one layer's keys and values of all sequences, which "
            f"{capacity.options.attention.value} attention gathers from this cache in every step"
        )
    elif chunked and access.chunk is KvRead.GATHERED:
        yield (
            "Activations include a copy of one layer's keys and values of one sequence, gathered "
            "where a long prompt is computed in pieces"
        )


def _speed(capacity: Capacity, rates: PlanRates) -> str:
    origin = "the datasheet" if rates.source is Source.DATASHEET else "the bandwidth that was given"
    between = "; no time between devices" if capacity.devices > 1 else ""
    return (
        f"Speed is the least time of a decode step at {origin} "
        f"({units.bytes_per_s(rates.read_bytes_per_s)}): nothing was measured, and real engines reach "
        f"a part of it{between}"
    )


def scale_caveats(model: ModelConfig, bytes_per_number: float) -> Iterator[Caveat]:
    """Of an int8 cache, whose scales are counted as if every vector had the model's head dim."""
    if float(bytes_per_number).is_integer():
        return
    cached = [kind.attention for kind, _ in model.kinds if cached_numbers(kind.attention)]
    if any(isinstance(one, LatentAttention) for one in cached):
        what = "a latent does not have"
    elif any(
        {one.key_dim, one.value_dim} != {model.head_dim}
        for one in cached
        if isinstance(one, SoftmaxAttention)
    ):
        what = "not every layer has: those with larger heads hold fewer"
    else:
        return
    yield Caveat(
        code="latent-scales",
        message=f"Scales of an int8 cache are counted per head dim of {model.head_dim}, which {what}",
    )


def plan_caveats(capacity: Capacity, rates: PlanRates | None) -> tuple[Caveat, ...]:
    """What a reader must know to read the plan right."""
    found = []
    dtype = capacity.options.compute_dtype
    if rates is not None and not has_compute_roof(rates, dtype):
        found.append(
            Caveat(
                code="no-compute-roof",
                message=f"No {dtype} rate is stated for {rates.name}: speeds leave arithmetic out, and "
                "are too high where a large batch is bound by it",
            )
        )
    found += scale_caveats(capacity.model, capacity.options.kv_bytes_per_number)
    if state_bytes_per_sequence(capacity.model) and capacity.devices > 1:
        found.append(
            Caveat(
                code="shared-states",
                message="States of linear layers are taken to be shared out evenly over the devices",
            )
        )
    return tuple(found)
