"""The model without its weights: attention, cache and inner sizes are true, the hidden size is tiny.

A step of it takes what attention takes, and what starting every other op takes. So it measures the
attention kernels of a setting, and the cost of starting ops, without running the model. Before each
product as many bytes pass through the caches as the model's weights would have brought.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import torch

from llmprof.analysis.prediction_target import Target, with_workload
from llmprof.architectures.manifest import manifest_from_config
from llmprof.architectures.source import ModelSource
from llmprof.ceilings.passing_weights import (
    PASSING,
    PassingInReplays,
    PassingWeights,
    WeightStream,
    weights_per_entry,
)
from llmprof.engine.dtypes import TORCH_DTYPES
from llmprof.engine.engine import Engine
from llmprof.engine.engine_workload import EngineWorkload
from llmprof.engine.execution.decode_inputs import DecodeInputs
from llmprof.engine.execution.program_step import MOST_ROWS, ProgramStep, record_program
from llmprof.engine.execution.runner import replay_natively
from llmprof.engine.kv_cache import KvCache
from llmprof.engine.model import Decoder
from llmprof.engine.probe import NullProbe
from llmprof.experiments.product_benchmark import product_shape
from llmprof.instruments.clock import HostClock, Timer, device_timer
from llmprof.instruments.host_memory import host_memory
from llmprof.instruments.tracer import GroupTracer, StepTracer
from llmprof.schema.cost import OpGroup, StepCost, StepShape
from llmprof.schema.run import StepSample
from llmprof.schema.settings import (
    ContextKind,
    ExecutionMode,
    KvLayout,
    MeasureSettings,
    Quantization,
    RunConfig,
    WeightDtype,
    WeightSource,
    WeightsSettings,
)

TINY: Final = 64
"""Hidden size: hardly a product takes longer than starting it."""
_STEPS: Final = 8
"""Decode steps of a round; a prefill is one step."""


@dataclass(frozen=True, slots=True)
class SkeletonStep:
    """The median step of one round."""

    group_s: dict[OpGroup, float]
    outside_s: float


class Skeleton:
    """One setting's skeleton, in memory and warm."""

    def __init__(
        self,
        target: Target,
        cost: StepCost,
        stream: WeightStream,
        *,
        device: str,
        threads: int,
        passing: StepCost | None = None,
    ) -> None:
        """For steps like that of `cost`, a prefill where it brings more than one token each.

        The weights that pass by, those of `cost` or of `passing`, are as much of `stream`, which
        skeletons that take turns share.

        Raises:
            CapabilityError: the engine cannot do what the settings say, or memory is too small.
            MeasurementFailedError: memory ran out.
        """
        self._threads = threads
        self._clock = HostClock()
        self._timer: Timer | None = device_timer(device)
        weights = passing or cost
        self._stream = stream.first(int(weights.traffic.weights))
        self._passing = _beside_its_own(weights, target)
        config = _settings(target, cost.shape, device)
        engine = Engine.load(
            _source(target),
            config,
            device=device,
            threads=threads,
            host_available_bytes=host_memory().available_bytes,
        )
        self._replays = _replays_natively(config, cost.shape, device)
        if self._replays:
            engine = replace(engine, runner=replay_natively(self._record))
        self._workload = EngineWorkload(engine, config)
        self._workload.run_round(NullProbe())

    def run(self) -> SkeletonStep:
        """One round; of replayed steps another one, in which nobody looks between the groups."""
        torch.set_num_threads(self._threads)
        tracer = GroupTracer(self._clock, self._timer, self._clock.now_ns())
        if not self._replays:
            self._workload.run_round(PassingWeights(tracer, self._stream, self._passing))
            return _median(tracer.samples())
        self._workload.run_round(tracer)
        clean = StepTracer(self._clock, self._timer, self._clock.now_ns())
        self._workload.run_round(clean)
        return _unwatched(tracer.samples(), clean.samples())

    def _record(self, decoder: Decoder, cache: KvCache, inputs: DecodeInputs) -> ProgramStep:
        passing = partial(PassingInReplays, stream=self._stream, size_bytes=self._passing)
        return record_program(decoder, cache, inputs, watched=passing)


def _beside_its_own(weights: StepCost, target: Target) -> dict[OpGroup, int]:
    """Bytes that pass before each product, less what the skeleton's own product reads."""
    wanted = weights_per_entry(weights, target.model.num_hidden_layers)
    tiny = target.model.model_copy(update={"hidden_size": TINY})
    own = {group: math.prod(product_shape(group, tiny)) for group in wanted}
    itemsize = TORCH_DTYPES[target.options.compute_dtype].itemsize
    return {group: max(0, size - own[group] * itemsize) for group, size in wanted.items()}


def _median(samples: Sequence[StepSample]) -> SkeletonStep:
    groups = {one.group for sample in samples for one in sample.groups}
    times = [{one.group: one.duration_s for one in sample.groups} for sample in samples]
    whole = [
        sample.duration_s if sample.device_s is None else sample.device_s for sample in samples
    ]
    outside = [step_s - sum(inside.values()) for step_s, inside in zip(whole, times, strict=True)]
    return SkeletonStep(
        group_s={
            group: statistics.median(inside.get(group, 0.0) for inside in times)
            for group in groups
            if group is not PASSING
        },
        outside_s=statistics.median(outside),
    )


def _unwatched(grouped: Sequence[StepSample], clean: Sequence[StepSample]) -> SkeletonStep:
    """The grouped step, scaled to the clean one as the ledger does it with a model's own steps."""
    seen = _median(grouped)
    looked_s, alone_s = (
        statistics.median(one.duration_s for one in steps) for steps in (grouped, clean)
    )
    scale = min(1.0, alone_s / looked_s)
    return SkeletonStep(
        group_s={group: scale * time_s for group, time_s in seen.group_s.items()},
        outside_s=scale * seen.outside_s,
    )


def _replays_natively(config: RunConfig, shape: StepShape, device: str) -> bool:
    compiled = device == "cpu" and config.execution.mode is ExecutionMode.COMPILED
    return compiled and shape.new_tokens == shape.num_sequences <= MOST_ROWS


def _source(target: Target) -> ModelSource:
    model = target.model.model_copy(update={"hidden_size": TINY})
    return ModelSource(
        name=f"the skeleton of {model.name}",
        kind="config",
        config=model,
        manifest=manifest_from_config(model, target.options.compute_dtype),
        files=(),
        tokenizer=None,
        has_weights=False,
    )


def _settings(target: Target, shape: StepShape, device: str) -> RunConfig:
    """Fixed work around one step: a filled cache to decode from, or a prompt."""
    first = shape.sequences[0]
    decodes = first.new_tokens == 1 and first.cached_tokens > 0
    filled = decodes and target.settings.kv_cache.layout is not KvLayout.NONE
    workload = with_workload(
        target.settings,
        batch=shape.num_sequences,
        prompt_tokens=max(1, first.cached_tokens - _STEPS // 2) if filled else first.new_tokens,
        output_tokens=1 + _STEPS if filled else 1,
        context=ContextKind.SYNTHETIC if filled else ContextKind.REAL,
    )
    weights = WeightsSettings(
        source=WeightSource.RANDOM,
        dtype=WeightDtype(target.options.compute_dtype),
        quantization=Quantization.NONE,
    )
    kv_cache = target.settings.kv_cache.model_copy(update={"memory_bytes": None})
    return workload.model_copy(
        update={
            "device": device,
            "weights": weights,
            "kv_cache": kv_cache,
            "measure": MeasureSettings(),
        }
    )
