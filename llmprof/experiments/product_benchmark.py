"""The matmul kernels of two settings by themselves, in turn, on weights streamed past the caches."""

from collections.abc import Iterator, Sequence
from functools import partial

import torch

from llmprof.analysis.kernel_keys import (
    TENSOR_OF,
    fused_kernel,
    kernel_key,
    phase_with_kernel,
    product_rows,
)
from llmprof.analysis.prediction_target import Target
from llmprof.ceilings.pool import Stream, random_pool
from llmprof.ceilings.read_kernels import read_kernels
from llmprof.ceilings.skinny import SkinnyProbe
from llmprof.ceilings.timing import Stopwatch
from llmprof.ceilings.weight_stream import WeightStream
from llmprof.costs.weight_formats import WeightFormat
from llmprof.costs.weight_layout import format_of
from llmprof.engine.dtypes import TORCH_DTYPES
from llmprof.engine.execution.program_step import MOST_ROWS
from llmprof.engine.linear import Linear
from llmprof.experiments.fused_operands import fused_product, takes_in_all
from llmprof.experiments.timed_pairs import kernel_time, repeat_until_agreed
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase, StepCost
from llmprof.schema.model import ModelConfig
from llmprof.schema.prediction import KernelTime
from llmprof.schema.settings import ExecutionMode

_PASSES = 9
_PASS_S = 0.004
_STEPS_BEFORE = 2
"""What is read for the first time hardly stays in a last-level cache that takes what others evict."""
_MOST_CACHED_BYTES = 512 << 20
"""A larger stream leaves nothing in any cache for its next pass."""
METHOD = "its matmul kernel by itself, base and target in turn"


class _Side:
    """One setting's products, on weights that are as cold as in its own step."""

    def __init__(self, target: Target, cost: StepCost, device: str, threads: int) -> None:
        """Takes memory for the weights of a step, and for what it reads of the cache."""
        self.target, self.cost, self.threads = target, cost, threads
        self._reads = read_kernels(device)[0]
        stored = {group: cost.of_groups(group).traffic.weights for group in PROJECTIONS}
        codes = sum(size * _code_share(group, target) for group, size in stored.items() if size)
        pool = random_pool(
            int(codes + cost.traffic.kv_read), device, TORCH_DTYPES[target.options.compute_dtype]
        )
        scale_bytes = int(sum(stored.values()) - codes)
        self.weights = WeightStream(Stream(pool), scale_bytes=scale_bytes)

    def fuses(self, group: OpGroup) -> bool:
        """Whether a product takes in what lies around it."""
        return fused_kernel(group, self.target, self.cost.shape)

    def probe(self, group: OpGroup, stopwatch: Stopwatch, *, replayed: bool) -> SkinnyProbe:
        torch.set_num_threads(self.threads)
        model, rows = self.target.model, product_rows(group, self.cost.shape)
        fused = partial(fused_product, group, model, rows)
        return SkinnyProbe(
            (product_shape(group, model),),
            rows,
            self.weights,
            stopwatch,
            working_set_bytes=self.weights.nbytes,
            formats=(_format(group, self.target),),
            whole=True,
            replayed=replayed,
            make_product=fused if self.fuses(group) else Linear,
        )

    def read_s(self, group: OpGroup, probe: SkinnyProbe) -> float:
        """One pass: time of the group's weights at the rate of this moment.

        The other side's weights have just passed through the caches, which they do in no step of this
        one: its own go by first, as they did in the steps before. Not where arithmetic is the limit:
        right after so much reading, products of many rows take a fifth longer than among their like.
        """
        torch.set_num_threads(self.threads)
        pools = [pool.view(torch.float32) for pool in self.weights.pools()]
        few_rows = product_rows(group, self.cost.shape) <= MOST_ROWS
        if few_rows and sum(pool.nbytes for pool in pools) <= _MOST_CACHED_BYTES:
            for pool in pools * _STEPS_BEFORE:
                self._reads.read(pool, 1)
        weight_bytes = self.cost.of_groups(group).traffic.weights
        return weight_bytes / probe.read(_PASS_S, most_passes=4).bytes_per_s


def benchmark_products(
    base: Target, target: Target, phase: Phase, device: str, threads: tuple[int, int]
) -> Iterator[KernelTime]:
    """One pair for each projection whose kernel or rows change; `threads` of base and target.

    Where the base ran the target's kernel in its other phase, it is that phase's step that the pair leads
    from. None where one side alone runs a fused kernel, which does more than a product, or one that leaves
    out part of what lies around it. Where the steps of a side are replayed on a CPU, both sides' products
    are: what starting them from Python costs is known by itself (`OverheadTime`).
    """
    sources: dict[Phase, list[OpGroup]] = {}
    for group in PROJECTIONS:
        sources.setdefault(phase_with_kernel(group, base, target, phase), []).append(group)
    for source, groups in sources.items():
        costs = base.cost(source), target.cost(phase)
        changed = [
            group
            for group in groups
            if _differs(group, (base, target), costs) and _alike(group, (base, target), costs)
        ]
        if changed:
            sides = [
                _Side(one, cost, device, count)
                for one, cost, count in zip((base, target), costs, threads, strict=True)
            ]
            yield from _pairs_of(changed, sides, phase, source, device)


def _pairs_of(
    groups: Sequence[OpGroup], sides: Sequence[_Side], phase: Phase, source: Phase, device: str
) -> Iterator[KernelTime]:
    stopwatch, replayed = Stopwatch(device), device == "cpu" and _replayed(sides, phase)
    with torch.inference_mode():
        for group in groups:
            probes = [one.probe(group, stopwatch, replayed=replayed) for one in sides]
            times = repeat_until_agreed(
                partial(_read_both, group, sides, probes),
                _as_it_is,
                repeats=_PASSES,
                on_cpu=device == "cpu",
            )
            yield kernel_time(
                phase,
                group,
                times,
                method=METHOD,
                on_cpu=device == "cpu",
                base_phase=None if source is phase else source,
            )


def _replayed(sides: Sequence[_Side], phase: Phase) -> bool:
    """Whether steps of either side are; those of many rows are not."""
    return phase is Phase.DECODE and any(
        side.target.settings.execution.mode is ExecutionMode.COMPILED
        and side.cost.shape.new_tokens <= MOST_ROWS
        for side in sides
    )


def _differs(
    group: OpGroup, sides: tuple[Target, Target], costs: tuple[StepCost, StepCost]
) -> bool:
    keys = [kernel_key(group, one, cost.shape) for one, cost in zip(sides, costs, strict=True)]
    rows = [product_rows(group, cost.shape) for cost in costs]
    return keys[0] != keys[1] or rows[0] != rows[1]


def _alike(group: OpGroup, sides: tuple[Target, Target], costs: tuple[StepCost, StepCost]) -> bool:
    """Whether both sides run bare products, or both a kernel that takes in all around them."""
    fused = [fused_kernel(group, one, cost.shape) for one, cost in zip(sides, costs, strict=True)]
    whole = [takes_in_all(group, cost.ops) for cost in costs]
    return fused == [False, False] or (all(fused) and all(whole))


def _read_both(
    group: OpGroup, sides: Sequence[_Side], probes: Sequence[SkinnyProbe]
) -> tuple[float, float]:
    before, after = (side.read_s(group, probe) for side, probe in zip(sides, probes, strict=True))
    return before, after


def _as_it_is(pair: tuple[float, float]) -> tuple[float, float]:
    return pair


def _code_share(group: OpGroup, one: Target) -> float:
    """Of a matrix's stored bytes: the rest are scales and minimums."""
    shape, weights = product_shape(group, one.model), _format(group, one)
    return weights.code_bytes(*shape) / weights.stored_bytes(*shape)


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
