"""What is predicted: a model under settings, with its costs and the memory that it needs."""

from dataclasses import dataclass
from typing import Final

from llmprof.costs.cache_access import kv_access
from llmprof.costs.fixed_work import step_shapes
from llmprof.costs.fusion import FOR_GPUS, fused_rows_of
from llmprof.costs.memory import MemoryNeed, memory_need
from llmprof.costs.options import CostOptions, options_from
from llmprof.costs.row_buckets import buckets_of
from llmprof.costs.step import step_cost
from llmprof.costs.weight_layout import laid_out
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.ceilings import Ceilings
from llmprof.schema.cost import Phase, StepCost, StepShape
from llmprof.schema.environment import Environment
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.prediction import Capacity, SettingChange
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import (
    MAX_SEQUENCES,
    AttentionKind,
    BatchingPolicy,
    ContextKind,
    ExecutionMode,
    KvDtype,
    Quantization,
    RunConfig,
    WeightDtype,
    WorkloadKind,
)

PACKED_ROWS: Final = 16
"""Rows up to which every packed format is read as it is, on any CPU (`engine.kernels.matvec`)."""
_PACKED_ROWS_GPU: Final = 32
"""The same on a GPU (`engine.kernels.packed`)."""
_FREE_GROUPS: Final = ("measure", "gate")
"""Settings that say how to measure: no step takes longer for them."""
MOST_SEQUENCES: Final = MAX_SEQUENCES


@dataclass(frozen=True, slots=True)
class Target:
    """A model under settings; every cost follows from it."""

    settings: RunConfig
    model: ModelConfig
    weights: WeightManifest
    options: CostOptions
    shapes: tuple[StepShape, ...]
    """Of the steps of one round."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        return tuple(dict.fromkeys(shape.phase for shape in self.shapes))

    def cost(self, phase: Phase) -> StepCost:
        """Of the phase's median step."""
        shapes = sorted(
            (shape for shape in self.shapes if shape.phase is phase),
            key=lambda shape: (shape.new_tokens, shape.cached_tokens),
        )
        return step_cost(self.model, self.weights, shapes[len(shapes) // 2], self.options)

    def weight_format(self, op: str) -> str:
        """`stored_dtype` of most of the weights of a projection (named as the tensors are)."""
        found = [one for one in self.weights.tensors if f".{op}." in f".{one.name}"]
        found = found or [one for one in self.weights.tensors if "embed_tokens" in one.name]
        return max(found, key=lambda one: one.stored_bytes).stored_dtype


def target_of_run(
    record: RunRecord, settings: RunConfig, ceilings: Ceilings | None = None
) -> Target:
    """The run's model under other settings; `ceilings` are those of another device.

    Raises:
        InputError: `weights.dtype` became `as_stored`, which only the file could tell.
        CapabilityError: work of another kind than a fixed batch, a format that has no layout, or steps
            that torch.compile would make.
    """
    if settings.model != record.settings.model:
        raise InputError(
            f"run {record.id} is of {record.settings.model}: nothing in it tells of another model",
            remedy="Predict from a run of that model, or from the model and ceilings alone",
        )
    _check_compiled(record, settings, ceilings)
    if record.model is None or record.weights is None:
        raise CapabilityError(
            f"run {record.id} has no model, so its costs cannot be recomputed",
            remedy="Predict from the run of a model",
        )
    dtype = _dtype_of(record, settings)
    same = settings.weights == record.settings.weights
    weights = record.weights if same else laid_out(record.model, settings.weights, dtype)
    own_kernel = record.environment.gpu is None or "attention.decode" in record.engine.kernels
    there = ceilings or record.ceilings
    fp8_ran = ceilings is None and record.settings.weights.quantization is Quantization.FP8
    return make_target(
        settings,
        record.model,
        weights,
        dtype,
        decode_kernel=own_kernel,
        packed_rows=(None if ceilings else record.engine.packed_rows)
        or packed_rows_of(there.environment),
        fp8_arithmetic=record.engine.fp8_arithmetic if fp8_ran else multiplies_fp8(there),
        fused_rows=_fused_rows(record, settings, dtype, ceilings),
    )


def _check_compiled(record: RunRecord, settings: RunConfig, ceilings: Ceilings | None) -> None:
    """Refuse to tell what torch.compile gives or takes: on a CPU `compiled` starts the same kernels."""
    there = record.environment if ceilings is None else ceilings.environment
    before = is_torch_compiled(record.settings, on_gpu=record.environment.gpu is not None)
    after = is_torch_compiled(settings, on_gpu=there.gpu is not None)
    if before is not after or (after and ceilings is not None):
        raise only_measured()


def only_measured() -> CapabilityError:
    """Why steps that torch.compile makes are not predicted."""
    return CapabilityError(
        "execution.mode=compiled on a GPU is measured, not predicted: which kernels torch.compile makes of "
        "a step is known when it has made them",
        remedy="Measure both: `llmprof compare CONFIG --cand execution.mode=compiled`",
    )


def is_torch_compiled(settings: RunConfig, *, on_gpu: bool) -> bool:
    """Whether decode steps are kernels that torch.compile made."""
    return on_gpu and settings.execution.mode is ExecutionMode.COMPILED


def _fused_rows(
    record: RunRecord, settings: RunConfig, dtype: str, ceilings: Ceilings | None
) -> int:
    """As the run did it; with another switch or weights, or elsewhere, as the engine does it now."""
    before, wanted = record.settings, settings.execution
    same = wanted.fused is before.execution.fused and settings.weights == before.weights
    compiled = {one.mode is ExecutionMode.COMPILED for one in (wanted, before.execution)}
    if ceilings is None and same and len(compiled) == 1:
        return record.engine.fused_rows
    there = record.environment if ceilings is None else ceilings.environment
    return fused_rows_of(wanted, dtype, trouble=fused_trouble(there))


def fused_trouble(environment: Environment | None) -> str | None:
    """See `fused_rows_of`; without an `environment`, on a GPU that has everything."""
    if environment is None:
        return None
    if environment.gpu is None:
        return FOR_GPUS
    return None if "triton" in environment.versions else "triton is not installed there"


def packed_rows_of(environment: Environment | None) -> int:
    """Rows up to which packed weights are read as they are; without an `environment`, on a GPU."""
    on_cpu = environment is not None and environment.gpu is None
    return PACKED_ROWS if on_cpu else _PACKED_ROWS_GPU


def multiplies_fp8(ceilings: Ceilings) -> bool:
    """Whether the device has a matmul in fp8, and what it reaches is known."""
    return any(one.dtype == "fp8" for one in ceilings.compute)


def make_target(
    settings: RunConfig,
    model: ModelConfig,
    weights: WeightManifest,
    dtype: str,
    *,
    decode_kernel: bool,
    packed_rows: int = PACKED_ROWS,
    fp8_arithmetic: bool = False,
    fused_rows: int = 0,
) -> Target:
    """From the parts.

    `dtype`: of the arithmetic; `decode_kernel`: flash decodes without a gather; `packed_rows`: see
    `CostOptions`; `fp8_arithmetic`: the device multiplies in fp8; `fused_rows`: as `packed_rows`.

    Raises:
        InputError: more tokens than the model has positions.
        CapabilityError: work of another kind than a fixed batch.
    """
    _check_fixed_work(settings, model)
    packed = settings.weights.quantization is not Quantization.NONE
    kv_dtype = settings.kv_cache.dtype
    flash = settings.attention.kind is AttentionKind.FLASH
    options = options_from(
        settings,
        compute_dtype=dtype,
        kv_dtype=dtype if kv_dtype is KvDtype.AS_WEIGHTS else kv_dtype.value,
        head_dim=model.head_dim,
        kv_access=kv_access(settings, decode_kernel=decode_kernel and flash),
        packed_rows=packed_rows if packed else None,
        fp8_arithmetic=fp8_arithmetic and dtype == "bf16",
        fused_rows=fused_rows,
        row_buckets=buckets_of(settings),
    )
    return Target(settings, model, weights, options, step_shapes(settings))


def changes_between(base: RunConfig, target: RunConfig) -> tuple[SettingChange, ...]:
    """Every key that differs, those of `measure` and `gate` apart."""
    before, after = _flat(base), _flat(target)
    return tuple(
        SettingChange(key=key, base=before[key], target=after[key])
        for key in after
        if before[key] != after[key]
    )


def memory_of(target: Target) -> MemoryNeed:
    """What the target holds at its largest step."""
    workload = target.settings.workload
    prefills = workload.context is ContextKind.REAL
    return memory_need(
        target.model,
        target.weights,
        target.options,
        batch=workload.batch,
        prompt_tokens=workload.prompt_tokens if prefills else 1,
        max_tokens=workload.prompt_tokens + workload.output_tokens,
    )


def capacity_of(target: Target, available_bytes: int) -> Capacity:
    """Whether the target fits, and how many sequences of its length would."""
    need = memory_of(target)
    return Capacity(
        available_bytes=max(available_bytes, 0),
        weight_bytes=need.weight_bytes,
        kv_bytes=need.kv_bytes,
        activation_bytes=need.activation_bytes,
        fits=need.total_bytes <= available_bytes,
        asked_batch=target.settings.workload.batch,
        largest_batch=largest_batch(target, available_bytes),
    )


def largest_batch(target: Target, available_bytes: int) -> int:
    """Most sequences of the target's length that fit, up to `MOST_SEQUENCES`."""

    def fits(batch: int) -> bool:
        return memory_of(with_batch(target, batch)).total_bytes <= available_bytes

    low, high = 0, MOST_SEQUENCES
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def with_batch(target: Target, batch: int) -> Target:
    """The same with so many sequences."""
    settings = with_workload(target.settings, batch=batch)
    return Target(settings, target.model, target.weights, target.options, step_shapes(settings))


def with_workload(settings: RunConfig, **changes: object) -> RunConfig:
    """The same settings with other keys of `workload`."""
    workload = settings.workload.model_copy(update=changes)
    return settings.model_copy(update={"workload": workload})


def available_of_run(record: RunRecord) -> int:
    """Bytes that a run there may take: what was free beside it, and what it held itself."""
    held = record.engine.weight_bytes + record.engine.kv_bytes_reserved
    return available_on(record.environment) + (0 if record.environment.gpu else held)


def available_on(environment: Environment) -> int:
    """Of a GPU all of its memory, of a host what was free."""
    gpu = environment.gpu
    return environment.memory_available_bytes if gpu is None else gpu.memory_bytes


def _flat(settings: RunConfig) -> dict[str, str]:
    found: dict[str, str] = {}

    def walk(value: object, path: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{path}.{key}".removeprefix("."))
        else:
            found[path] = str(value)

    walk(settings.model_dump(mode="json", exclude=set(_FREE_GROUPS)), "")
    return found


def _dtype_of(record: RunRecord, settings: RunConfig) -> str:
    wanted = settings.weights.dtype
    if wanted is record.settings.weights.dtype:
        return record.engine.compute_dtype
    if wanted is WeightDtype.AS_STORED:
        raise InputError(
            "weights.dtype=as_stored depends on the file, which the run does not hold",
            remedy="Name the dtype: fp32, bf16 or fp16",
        )
    return wanted.value


def _check_fixed_work(settings: RunConfig, model: ModelConfig) -> None:
    workload, batching = settings.workload, settings.batching
    if workload.kind is not WorkloadKind.FIXED or batching.policy is not BatchingPolicy.STATIC:
        raise CapabilityError(
            "only fixed work in a static batch is predicted: a served trace has no step of one shape",
            remedy="Set workload.kind=fixed and batching.policy=static",
        )
    if settings.parallel.tensor > 1:
        raise CapabilityError(
            "parallel.tensor is measured, not predicted: how the ranks wait for each other follows "
            "from no ceiling",
            remedy=f"Set parallel.tensor=1, or measure it: torchrun --nproc-per-node "
            f"{settings.parallel.tensor} -m llmprof run ...",
        )
    tokens = workload.prompt_tokens + workload.output_tokens
    if tokens > model.max_position_embeddings:
        raise InputError(
            f"{workload.prompt_tokens} prompt tokens and {workload.output_tokens} output tokens are "
            f"{tokens}, but {model.name} has {model.max_position_embeddings} positions",
            remedy="Shorten the prompt or the output",
        )
    if settings.kv_cache.layout.value == "none" and workload.context is ContextKind.SYNTHETIC:
        raise InputError(
            "workload.context=synthetic fills a KV cache, and kv_cache.layout=none has none",
            remedy="Set workload.context=real",
        )
