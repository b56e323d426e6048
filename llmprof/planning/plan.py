"""The plan of a device's memory: what fits, how fast it could decode at best, and what that costs."""

from dataclasses import dataclass
from typing import Final

from llmprof import units
from llmprof.architectures.source import ModelSource
from llmprof.costs.kv_cache import KvConvention, kv_bytes_per_token
from llmprof.errors import InputError
from llmprof.planning.capacity import Capacity
from llmprof.planning.decode_forecast import decode_forecast
from llmprof.planning.effects import EffectQuestion, effects
from llmprof.planning.formats import (
    compute_dtype_of,
    kv_dtype_of,
    planned_options,
    planned_weights,
    weight_format,
)
from llmprof.planning.inspection import model_caveats, weight_caveats
from llmprof.planning.kv_formula import context_formula, token_formula
from llmprof.planning.plan_words import assumptions, capacity_formula, plan_caveats
from llmprof.schema.measurement import Caveat, Source
from llmprof.schema.model import WeightManifest
from llmprof.schema.plan import MemorySplit, Plan, PlannedDecode, PlanPoint, PlanRates
from llmprof.schema.run import Tool
from llmprof.schema.settings import BatchingPolicy, Quantization, RunConfig

_DEFAULT_REFERENCE: Final = 8192
_DEFAULT_CONTEXTS: Final = 8
_DEFAULT_BATCHES: Final = tuple(2**power for power in range(9))


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a plan is asked about."""

    device_bytes: int
    """Memory of each device."""
    device_source: Source
    reserve_bytes: int
    rates: PlanRates | None = None
    price_per_hour: float | None = None
    """Of one device."""
    contexts: tuple[int, ...] = ()
    """Tokens per sequence, prompt and output; empty for powers of two up to the model's positions."""
    batches: tuple[int, ...] = ()
    """Sequences; empty for powers of two."""
    policy: BatchingPolicy = BatchingPolicy.CONTINUOUS


def make_plan(source: ModelSource, config: RunConfig, request: PlanRequest, *, tool: Tool) -> Plan:
    """Plan from shapes and file headers: no weight is read and no device is asked.

    Raises:
        InputError: a context beyond the model's positions, heads that devices cannot share, or a
            reserve that leaves nothing.
        CapabilityError: a weight format that the model does not fit into.
    """
    model = source.config
    contexts = request.contexts or default_contexts(model.max_position_embeddings)
    _check(request, contexts, model.name, model.max_position_embeddings)
    reference = request.contexts[0] if request.contexts else _reference(contexts)
    capacity = make_capacity(source, config, request)
    number = capacity.options.kv_bytes_per_number
    dtype = compute_dtype_of(source, config)
    question = EffectQuestion(
        source=source,
        config=with_policy(config, request.policy),
        base=capacity,
        reference_tokens=reference,
        contexts=tuple(sorted({*contexts, reference})),
        rates=request.rates,
        price_per_hour=request.price_per_hour,
    )
    return Plan(
        tool=tool,
        model=model,
        origin=capacity.weights.origin,
        settings=config,
        devices=capacity.devices,
        weight_format=weight_format(capacity.weights),
        kv_dtype=kv_dtype_of(config, dtype),
        compute_dtype=dtype,
        memory=_split(capacity, request, reference),
        rates=request.rates,
        price_per_hour=request.price_per_hour,
        reference_context_tokens=reference,
        kv_bytes_per_token=kv_bytes_per_token(model, number, tensor_parallel=capacity.devices),
        kv_formula=token_formula(model, number, devices=capacity.devices),
        context_formula=context_formula(
            model,
            reference,
            number,
            sequences=1,
            devices=capacity.devices,
            convention=capacity.convention,
            block_tokens=capacity.block_tokens,
        ),
        capacity_formula=capacity_formula(capacity, request.reserve_bytes, reference),
        by_context=tuple(_by_context(capacity, tokens, request) for tokens in contexts),
        by_sequences=tuple(
            _by_sequences(capacity, count, request) for count in request.batches or _DEFAULT_BATCHES
        ),
        asked=tuple(
            _point(capacity, count, tokens, "asked", request)
            for tokens in request.contexts
            for count in request.batches
        ),
        effects=effects(question),
        assumptions=assumptions(capacity, request.rates, request.price_per_hour),
        caveats=(
            *_weight_caveats(source, config, capacity.weights),
            *model_caveats(model),
            *plan_caveats(capacity, request.rates),
        ),
    )


def _weight_caveats(
    source: ModelSource, config: RunConfig, weights: WeightManifest
) -> tuple[Caveat, ...]:
    """What the engine packs itself, it keeps packed."""
    packs = config.weights.quantization is not Quantization.NONE
    return () if packs else weight_caveats(source, weights)


def make_capacity(source: ModelSource, config: RunConfig, request: PlanRequest) -> Capacity:
    """Raises as `make_plan`."""
    dtype = compute_dtype_of(source, config)
    config = with_policy(config, request.policy)
    return Capacity(
        model=source.config,
        weights=planned_weights(source, config),
        options=planned_options(source.config, config, dtype),
        devices=config.parallel.tensor,
        budget_bytes=request.device_bytes - request.reserve_bytes,
        policy=request.policy,
        max_step_tokens=config.batching.max_step_tokens,
        convention=KvConvention.ENGINE_ALLOCATED,
    )


def with_policy(config: RunConfig, policy: BatchingPolicy) -> RunConfig:
    """How sequences are batched decides whether attention must gather what is cached."""
    batching = config.batching.model_copy(update={"policy": policy})
    return config.model_copy(update={"batching": batching})


def default_contexts(positions: int) -> tuple[int, ...]:
    """Powers of two, the last few that the model has positions for, and all of its positions."""
    powers = [2**power for power in range(31) if 2**power <= positions]
    return tuple(sorted({*powers[-_DEFAULT_CONTEXTS:], positions}))


def _reference(contexts: tuple[int, ...]) -> int:
    """The default where it is planned, else the largest that is smaller, else the smallest."""
    return max((tokens for tokens in contexts if tokens <= _DEFAULT_REFERENCE), default=contexts[0])


def _check(request: PlanRequest, contexts: tuple[int, ...], name: str, positions: int) -> None:
    if max(contexts) > positions:
        raise InputError(
            f"a context of {units.exact(max(contexts))} tokens is longer than the "
            f"{units.exact(positions)} positions of {name}",
            remedy=f"Ask for {units.exact(positions)} tokens at most",
        )
    if request.reserve_bytes >= request.device_bytes:
        raise InputError(
            f"a reserve of {units.byte_count(request.reserve_bytes)} leaves nothing of "
            f"{units.byte_count(request.device_bytes)}",
            remedy="Lower --reserve, or raise --memory",
        )


def _split(capacity: Capacity, request: PlanRequest, tokens: int) -> MemorySplit:
    sequences = max(1, capacity.most_sequences(tokens))
    activations = capacity.activation_bytes(sequences, tokens)
    return MemorySplit(
        device_bytes=request.device_bytes,
        device_source=request.device_source,
        reserve_bytes=request.reserve_bytes,
        weight_bytes=capacity.weight_bytes,
        activation_bytes=activations,
        kv_room_bytes=capacity.budget_bytes - capacity.weight_bytes - activations,
    )


def _by_context(capacity: Capacity, tokens: int, request: PlanRequest) -> PlanPoint:
    return _point(capacity, capacity.most_sequences(tokens), tokens, "memory", request)


def _by_sequences(capacity: Capacity, sequences: int, request: PlanRequest) -> PlanPoint:
    tokens = capacity.longest_context(sequences)
    at_end = tokens == capacity.model.max_position_embeddings
    return _point(capacity, sequences, tokens, "positions" if at_end else "memory", request)


def _point(
    capacity: Capacity, sequences: int, tokens: int, limit: str, request: PlanRequest
) -> PlanPoint:
    # Where nothing fits, the bytes of the smallest case show by how much.
    counted, length = max(1, sequences), max(1, tokens)
    needed = capacity.needed_bytes(counted, length)
    fits = bool(sequences and tokens) and needed <= capacity.budget_bytes
    return PlanPoint.model_validate(
        {
            "context_tokens": tokens,
            "sequences": sequences,
            "sequence_bytes": capacity.sequence_bytes(length),
            "activation_bytes": capacity.activation_bytes(counted, length),
            "needed_bytes": needed,
            "fits": fits,
            "limit": limit,
            "decode": _decode(capacity, sequences, tokens, request) if fits else None,
        }
    )


def _decode(
    capacity: Capacity, sequences: int, tokens: int, request: PlanRequest
) -> PlannedDecode | None:
    if request.rates is None:
        return None
    return decode_forecast(
        capacity, request.rates, sequences, tokens, price_per_hour=request.price_per_hour
    )
