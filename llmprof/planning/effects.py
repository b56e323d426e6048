"""One thing changed at a time: what each lever does to the memory of a plan."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from llmprof.architectures.source import ModelSource
from llmprof.costs.kv_cache import KvConvention
from llmprof.errors import LlmprofError
from llmprof.planning.capacity import Capacity
from llmprof.planning.decode_forecast import decode_forecast
from llmprof.planning.formats import compute_dtype_of, planned_options, planned_weights
from llmprof.schema.plan import FrontierPoint, PlanEffect, PlanRates
from llmprof.schema.settings import KvDtype, KvLayout, Quantization, RunConfig, WeightDtype

_DEVICES: Final = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class EffectQuestion:
    """The plan that effects are compared with, and where."""

    source: ModelSource
    config: RunConfig
    base: Capacity
    reference_tokens: int
    contexts: tuple[int, ...]
    """Of the frontier."""
    rates: PlanRates | None
    price_per_hour: float | None


@dataclass(frozen=True, slots=True)
class _Variant:
    label: str
    change: str
    make: Callable[[], Capacity]


def effects(question: EffectQuestion) -> tuple[PlanEffect, ...]:
    """The plan as it is, then every KV dtype, layout, weight format and number of devices but its own."""
    as_asked = _Variant("as planned", "", lambda: question.base)
    return tuple(_effect(variant, question) for variant in (as_asked, *_variants(question)))


def _effect(variant: _Variant, question: EffectQuestion) -> PlanEffect:
    try:
        capacity = variant.make()
        weight_bytes = capacity.weight_bytes
        tokens = question.reference_tokens
        sequences = capacity.most_sequences(tokens)
        frontier = _frontier(capacity, question.contexts)
    except LlmprofError as error:
        return PlanEffect(
            label=variant.label,
            change=variant.change,
            weight_bytes=None,
            sequence_bytes=None,
            sequences=None,
            decode=None,
            reason=error.message,
        )
    decode = None
    if question.rates is not None and sequences:
        decode = decode_forecast(
            capacity, question.rates, sequences, tokens, price_per_hour=question.price_per_hour
        )
    return PlanEffect(
        label=variant.label,
        change=variant.change,
        weight_bytes=weight_bytes,
        sequence_bytes=capacity.sequence_bytes(tokens),
        sequences=sequences,
        decode=decode,
        frontier=frontier,
    )


def _frontier(capacity: Capacity, contexts: Sequence[int]) -> tuple[FrontierPoint, ...]:
    return tuple(
        FrontierPoint(context_tokens=tokens, sequences=capacity.most_sequences(tokens))
        for tokens in contexts
    )


def _variants(question: EffectQuestion) -> Iterator[_Variant]:
    yield from _kv_dtypes(question)
    yield from _layouts(question)
    yield from _weight_formats(question)
    yield from _device_counts(question)


def _kv_dtypes(question: EffectQuestion) -> Iterator[_Variant]:
    for dtype in KvDtype:
        if dtype is not question.config.kv_cache.dtype:
            label = "KV as weights" if dtype is KvDtype.AS_WEIGHTS else f"KV {dtype.value}"
            config = _changed(question.config, "kv_cache", dtype=dtype)
            yield _Variant(label, f"kv_cache.dtype={dtype.value}", _with_config(question, config))


def _layouts(question: EffectQuestion) -> Iterator[_Variant]:
    base = question.base
    if base.options.kv_layout is not KvLayout.PAGED:
        config = _changed(question.config, "kv_cache", layout=KvLayout.PAGED)
        yield _Variant("paged KV", "kv_cache.layout=paged", _with_config(question, config))
    longest = max(question.contexts)
    if longest > question.reference_tokens:
        config = _changed(question.config, "kv_cache", layout=KvLayout.CONTIGUOUS)
        build = _with_config(question, config)
        yield _Variant(
            f"reserved for {longest:,}",
            f"contiguous, every sequence reserving {longest:,} tokens",
            lambda: replace(build(), reserved_context_tokens=longest),
        )
    windowed = replace(base, convention=_windowed_convention(base))
    if windowed.sequence_bytes(longest) < base.sequence_bytes(longest):
        yield _Variant(
            "windows drop",
            "a cache that forgets what sliding windows no longer see",
            lambda: windowed,
        )


def _windowed_convention(base: Capacity) -> KvConvention:
    paged = base.options.kv_layout is KvLayout.PAGED
    return KvConvention.BLOCK_ROUNDED if paged else KvConvention.IDEAL


def _weight_formats(question: EffectQuestion) -> Iterator[_Variant]:
    now = question.config.weights
    packed = any(
        tensor.stored_dtype not in {dtype.value for dtype in WeightDtype}
        for tensor in question.source.manifest.tensors
    )
    if now.quantization is Quantization.NONE and packed and now.dtype is WeightDtype.AS_STORED:
        config = _changed(question.config, "weights", dtype=WeightDtype.BF16)
        yield _Variant("bf16 weights", "weights.dtype=bf16", _with_config(question, config))
    for packing in (Quantization.NONE, Quantization.INT8, Quantization.INT4):
        if packing is not now.quantization:
            label = "as stored" if packing is Quantization.NONE else packing.value
            config = _changed(
                question.config, "weights", quantization=packing, group_size=None, symmetric=False
            )
            yield _Variant(
                f"{label} weights",
                f"weights.quantization={packing.value}",
                _with_config(question, config),
            )


def _device_counts(question: EffectQuestion) -> Iterator[_Variant]:
    for devices in _DEVICES:
        if devices != question.base.devices:
            config = _changed(question.config, "parallel", tensor=devices)
            label = "1 device" if devices == 1 else f"{devices} devices"
            yield _Variant(label, f"parallel.tensor={devices}", _with_config(question, config))


def _changed(config: RunConfig, group: str, **values: object) -> RunConfig:
    changed = getattr(config, group).model_copy(update=values)
    return config.model_copy(update={group: changed})


def _with_config(question: EffectQuestion, config: RunConfig) -> Callable[[], Capacity]:
    def build() -> Capacity:
        source = question.source
        dtype = compute_dtype_of(source, config)
        return replace(
            question.base,
            weights=planned_weights(source, config),
            options=planned_options(source.config, config, dtype),
            devices=config.parallel.tensor,
        )

    return build
