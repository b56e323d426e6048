"""The matmul kernels of two settings by themselves, in turn, on weights streamed past the caches."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from llmprof.analysis.kernel_keys import TENSOR_OF, kernel_key, product_rows
from llmprof.analysis.prediction_target import Target
from llmprof.ceilings.pool import Stream, random_pool
from llmprof.ceilings.skinny import SkinnyProbe
from llmprof.ceilings.timing import Stopwatch
from llmprof.costs.fusion import runs_fused
from llmprof.costs.weight_formats import WeightFormat
from llmprof.costs.weight_layout import format_of
from llmprof.engine.dtypes import TORCH_DTYPES
from llmprof.experiments.timed_pairs import kernel_time, repeat_until_agreed
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase, StepCost
from llmprof.schema.model import ModelConfig
from llmprof.schema.prediction import KernelTime

_PASSES = 9
_PASS_S = 0.004
METHOD = "its matmul kernel by itself, base and target in turn"


@dataclass(frozen=True, slots=True)
class _Arm:
    probe: SkinnyProbe
    weight_bytes: float
    threads: int

    def read_s(self) -> float:
        """One pass: time of the group's weights at the rate of this moment."""
        torch.set_num_threads(self.threads)
        return self.weight_bytes / self.probe.read(_PASS_S, most_passes=4).bytes_per_s


def benchmark_products(
    base: Target, target: Target, phase: Phase, device: str, threads: tuple[int, int]
) -> Iterator[KernelTime]:
    """One pair for each projection whose kernel or rows change; `threads` of base and target.

    None where a side runs a fused kernel: what is timed here is a bare product.
    """
    costs = base.cost(phase), target.cost(phase)
    changed = [
        group
        for group in PROJECTIONS
        if _differs(group, (base, target), costs) and not _fused(group, (base, target), costs)
    ]
    if not changed:
        return
    streams = [_stream(one, cost, device) for one, cost in zip((base, target), costs, strict=True)]
    stopwatch = Stopwatch(device)
    with torch.inference_mode():
        for group in changed:
            arms = [
                _arm(group, one, cost, stream, stopwatch, count)
                for one, cost, stream, count in zip(
                    (base, target), costs, streams, threads, strict=True
                )
            ]
            times = repeat_until_agreed(
                partial(_read_both, *arms), _as_it_is, repeats=_PASSES, on_cpu=device == "cpu"
            )
            yield kernel_time(phase, group, times, method=METHOD, on_cpu=device == "cpu")


def _differs(
    group: OpGroup, sides: tuple[Target, Target], costs: tuple[StepCost, StepCost]
) -> bool:
    keys = [kernel_key(group, one, cost.shape) for one, cost in zip(sides, costs, strict=True)]
    rows = [product_rows(group, cost.shape) for cost in costs]
    return keys[0] != keys[1] or rows[0] != rows[1]


def _fused(group: OpGroup, sides: tuple[Target, Target], costs: tuple[StepCost, StepCost]) -> bool:
    return any(
        runs_fused(product_rows(group, cost.shape), one.options)
        for one, cost in zip(sides, costs, strict=True)
    )


def _read_both(base: _Arm, target: _Arm) -> tuple[float, float]:
    return base.read_s(), target.read_s()


def _as_it_is(pair: tuple[float, float]) -> tuple[float, float]:
    return pair


def _stream(one: Target, cost: StepCost, device: str) -> Stream:
    """As large as what a step of this side reads, so that weights are as cold as there."""
    size = int(cost.traffic.weights + cost.traffic.kv_read)
    return Stream(random_pool(size, device, TORCH_DTYPES[one.options.compute_dtype]))


def _arm(
    group: OpGroup,
    one: Target,
    cost: StepCost,
    stream: Stream,
    stopwatch: Stopwatch,
    threads: int,
) -> _Arm:
    torch.set_num_threads(threads)
    probe = SkinnyProbe(
        (product_shape(group, one.model),),
        product_rows(group, cost.shape),
        stream,
        stopwatch,
        working_set_bytes=stream.pool.nbytes,
        formats=(_format(group, one),),
        whole=True,
    )
    return _Arm(probe, cost.of_groups(group).traffic.weights, threads)


def product_shape(group: OpGroup, model: ModelConfig) -> tuple[int, int]:
    """[out_features, in_features] of one product, as the engine fuses them."""
    hidden, inner = model.hidden_size, model.intermediate_size
    return {
        OpGroup.QKV_PROJECTION: (model.query_size + 2 * model.kv_size, hidden),
        OpGroup.OUTPUT_PROJECTION: (hidden, model.query_size),
        OpGroup.GATE_UP_PROJECTION: (2 * inner, hidden),
        OpGroup.DOWN_PROJECTION: (hidden, inner),
        OpGroup.LM_HEAD: (model.vocab_size, hidden),
    }[group]


def _format(group: OpGroup, one: Target) -> WeightFormat:
    name = "lm_head.weight" if group is OpGroup.LM_HEAD else TENSOR_OF[group]
    shape = product_shape(group, one.model)
    return format_of(name, shape, one.settings.weights, one.options.compute_dtype)
