"""A model on paper: parameters, bytes, cache per token, and what a prefill and a decode step cost."""

from dataclasses import dataclass

from llmprof import units
from llmprof.architectures.manifest import expected_buffers, manifest_from_config
from llmprof.architectures.source import ModelSource
from llmprof.costs.kv_cache import KvConvention, kv_bytes_at, kv_bytes_per_token
from llmprof.costs.linear_state import state_bytes_per_sequence
from llmprof.costs.memory import logits_bytes, peak_activation_bytes
from llmprof.costs.options import CostOptions, bytes_per_number, kv_bytes_per_number
from llmprof.costs.parameters import ParameterCount, count_parameters
from llmprof.costs.step import step_cost
from llmprof.costs.tensor_parallel import weight_bytes_per_device
from llmprof.errors import InputError
from llmprof.planning.kv_formula import context_formula, token_formula
from llmprof.planning.plan_words import scale_caveats
from llmprof.schema.cost import Phase, SequenceShape, StepCost, StepShape
from llmprof.schema.inspection import (
    ActiveParameters,
    CacheFigures,
    DecodeFigures,
    DeviceFigures,
    Inspection,
    PrefillFigures,
)
from llmprof.schema.measurement import Caveat
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.settings import AttentionKind, KvDtype, WeightDtype

_FLOAT_DTYPES = ("fp32", "bf16", "fp16")
_DTYPE_OF_PACKED = "bf16"
"""The engine computes in bf16 what a file stores in blocks."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The work that is asked for."""

    prompt_tokens: int
    context_tokens: int
    batch: int


def inspect_model(
    source: ModelSource,
    *,
    prompt_tokens: int = 512,
    context_tokens: int = 512,
    batch: int = 1,
    kv_dtype: KvDtype = KvDtype.AS_WEIGHTS,
    weight_dtype: WeightDtype = WeightDtype.AS_STORED,
    attention: AttentionKind = AttentionKind.FLASH,
    tensor_parallel: int = 1,
) -> Inspection:
    """Work out a model from its shape and the headers of its files; no weight is read.

    The prefill is one pass over `prompt_tokens` of each of `batch` sequences; the decode step adds
    one token to `context_tokens` cached ones. K and V count in the dtype of the arithmetic, or in
    `kv_dtype` with its scales. Weights count as the files store them, or in `weight_dtype`.

    Raises:
        InputError: more tokens than the model has positions, or heads that devices cannot share.
        CapabilityError: a tensor that costs do not know.
    """
    sizes = _Sizes(prompt_tokens, context_tokens, batch)
    model = source.config
    _check_positions(model, sizes)
    manifest = _manifest(source, weight_dtype)
    compute_dtype = _compute_dtype(manifest)
    options = _options(model, compute_dtype, kv_dtype, attention)
    parameters = count_parameters(model)
    prefill = step_cost(model, manifest, _prefill_shape(sizes), options)
    decode = step_cost(model, manifest, _decode_shape(sizes), options)
    return Inspection(
        model=model,
        origin=manifest.origin,
        batch=batch,
        parameters_total=parameters.total,
        parameters_embedding=parameters.embedding,
        parameters_active=_active(parameters),
        parameters_mtp=parameters.mtp,
        parameters_vision=parameters.vision,
        router_corrections=sum(size for (size,) in expected_buffers(model).values()),
        weight_bytes=manifest.stored_bytes,
        weight_dtypes=_bytes_by_dtype(manifest),
        kv_bytes_per_token=kv_bytes_per_token(model, options.kv_bytes_per_number),
        kv_formula=token_formula(model, options.kv_bytes_per_number),
        kv_cache=_cache_figures(model, sizes, options),
        device=_device_figures(model, manifest, options, tensor_parallel),
        logits_bytes=logits_bytes(model, batch),
        peak_activation_bytes=peak_activation_bytes(model, _prefill_shape(sizes), options),
        prefill=_prefill_figures(sizes, prefill),
        decode=_decode_figures(sizes, decode),
        prefill_cost=prefill,
        decode_cost=decode,
        caveats=(
            *weight_caveats(source, manifest),
            *model_caveats(model),
            *scale_caveats(model, options.kv_bytes_per_number),
        ),
    )


def _check_positions(model: ModelConfig, sizes: _Sizes) -> None:
    limit = model.max_position_embeddings
    for name, tokens in (("prompt", sizes.prompt_tokens), ("context", sizes.context_tokens)):
        if tokens > limit:
            raise InputError(
                f"a {name} of {units.exact(tokens)} tokens is longer than the "
                f"{units.exact(limit)} positions of {model.name}",
                remedy=f"Ask for {units.exact(limit)} tokens at most.",
            )


def _manifest(source: ModelSource, weight_dtype: WeightDtype) -> WeightManifest:
    if weight_dtype is WeightDtype.AS_STORED:
        return source.manifest
    return manifest_from_config(source.config, weight_dtype.value)


def _compute_dtype(manifest: WeightManifest) -> str:
    """The dtype of most bytes; as in the engine, one packed tensor makes it that of unpacked ones."""
    by_dtype = _bytes_by_dtype(manifest)
    if set(by_dtype) - set(_FLOAT_DTYPES):
        return _DTYPE_OF_PACKED
    return max(by_dtype, key=lambda dtype: by_dtype[dtype])


def _options(
    model: ModelConfig, compute_dtype: str, kv_dtype: KvDtype, attention: AttentionKind
) -> CostOptions:
    stored = compute_dtype if kv_dtype is KvDtype.AS_WEIGHTS else kv_dtype.value
    number = bytes_per_number(compute_dtype)
    return CostOptions(
        attention=attention,
        kv_bytes_per_number=kv_bytes_per_number(stored, model.head_dim),
        compute_dtype=compute_dtype,
        activation_bytes=number,
        score_bytes=number,
    )


def _prefill_shape(sizes: _Sizes) -> StepShape:
    prompts = SequenceShape(count=sizes.batch, new_tokens=sizes.prompt_tokens, cached_tokens=0)
    return StepShape(phase=Phase.PREFILL, sequences=(prompts,), logit_rows=sizes.batch)


def _decode_shape(sizes: _Sizes) -> StepShape:
    growing = SequenceShape(count=sizes.batch, new_tokens=1, cached_tokens=sizes.context_tokens)
    return StepShape(phase=Phase.DECODE, sequences=(growing,), logit_rows=sizes.batch)


def _prefill_figures(sizes: _Sizes, cost: StepCost) -> PrefillFigures:
    return PrefillFigures(
        tokens=sizes.prompt_tokens,
        flops_dense=cost.flops_dense,
        flops_causal=cost.flops_causal,
        flops=cost.flops,
        bytes=cost.traffic.required,
        bytes_with_activations=cost.traffic.total,
    )


def _decode_figures(sizes: _Sizes, cost: StepCost) -> DecodeFigures:
    return DecodeFigures(
        context_tokens=sizes.context_tokens,
        flops=cost.flops,
        flops_full_attention=cost.flops_causal,
        bytes=cost.traffic.required,
        bytes_with_activations=cost.traffic.total,
    )


def _active(parameters: ParameterCount) -> ActiveParameters:
    return ActiveParameters(
        with_embedding_and_head=parameters.active,
        without_embedding=parameters.active_without_embedding,
        without_embedding_and_head=parameters.active_without_embedding_and_head,
    )


def _cache_figures(model: ModelConfig, sizes: _Sizes, options: CostOptions) -> CacheFigures:
    tokens, number, block = sizes.context_tokens, options.kv_bytes_per_number, options.block_tokens
    ideal, rounded, allocated = (
        sizes.batch * kv_bytes_at(model, tokens, number, convention=one, block_tokens=block)
        for one in KvConvention
    )
    return CacheFigures(
        context_tokens=tokens,
        ideal_bytes=ideal,
        block_rounded_bytes=rounded,
        engine_allocated_bytes=allocated,
        block_tokens=block,
        state_bytes=sizes.batch * state_bytes_per_sequence(model),
        formula=context_formula(model, tokens, number, sequences=sizes.batch),
    )


def _device_figures(
    model: ModelConfig, manifest: WeightManifest, options: CostOptions, devices: int
) -> DeviceFigures:
    number = options.kv_bytes_per_number
    return DeviceFigures(
        devices=devices,
        weight_bytes=weight_bytes_per_device(model, manifest, devices),
        kv_bytes_per_token=kv_bytes_per_token(model, number, tensor_parallel=devices),
    )


def _bytes_by_dtype(manifest: WeightManifest) -> dict[str, int]:
    by_dtype: dict[str, int] = {}
    for tensor in manifest.tensors:
        by_dtype[tensor.stored_dtype] = by_dtype.get(tensor.stored_dtype, 0) + tensor.stored_bytes
    return by_dtype


def weight_caveats(source: ModelSource, manifest: WeightManifest) -> tuple[Caveat, ...]:
    """What is not known of stored bytes, or differs once they are loaded."""
    packed = [dtype for dtype in _bytes_by_dtype(manifest) if dtype not in _FLOAT_DTYPES]
    on_paper = Caveat(
        code="on-paper",
        message="No weight file was read: weight bytes follow from the configuration"
        + (" and its quantization" if packed else " and one dtype for every tensor"),
    )
    if packed:
        return (
            *(() if source.has_weights else (on_paper,)),
            Caveat(
                code="packed-weights",
                message=f"Weight bytes are those of the file ({', '.join(packed)}); an engine that "
                f"unpacks them when it loads reads {_DTYPE_OF_PACKED} instead",
                remedy=f"--set weights.dtype={_DTYPE_OF_PACKED} shows those bytes.",
            ),
        )
    return () if source.has_weights else (on_paper,)


def model_caveats(model: ModelConfig) -> tuple[Caveat, ...]:
    """What the figures of every plan leave out or assume."""
    found = []
    if any(layer.mlp.kind == "experts" for layer, _ in model.kinds):
        found.append(
            Caveat(
                code="uniform-routing",
                message="A step is taken to read as many experts as its tokens choose on average "
                "when every choice is equally likely; real routing is skewed and reads fewer",
            )
        )
    if model.vision is not None:
        known = model.vision.parameters is not None
        found.append(
            Caveat(
                code="vision-apart",
                message="The image encoder is not in the figures"
                if known
                else f"The image encoder ({model.vision.model_type}) is not counted: its kind is not "
                "known",
            )
        )
    return tuple(found)
