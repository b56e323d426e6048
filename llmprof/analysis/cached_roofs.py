"""Roofs of single kernels that were measured once on this device, as times of a step's groups."""

from collections.abc import Collection, Iterator

from llmprof.analysis.kernel_keys import TENSOR_OF, fused_kernel, product_rows
from llmprof.analysis.prediction_target import Target
from llmprof.schema.ceilings import Ceilings, HostCost
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase, StepCost
from llmprof.schema.prediction import KernelBenchmarks, KernelTime, OverheadTime
from llmprof.schema.settings import KvLayout


def cached_benchmarks(
    ceilings: Ceilings, base: Target, target: Target, phase: Phase
) -> KernelBenchmarks:
    """Pairs of times for every group of `phase` whose kernels the ceilings know in both settings."""
    kernels = [
        *_products(ceilings, base, target, phase),
        *_attention(ceilings, base, target, phase),
    ]
    return KernelBenchmarks(
        kernels=tuple(kernels), overheads=tuple(_overheads(ceilings, base, target, phase))
    )


def _products(
    ceilings: Ceilings, base: Target, target: Target, phase: Phase
) -> Iterator[KernelTime]:
    for group in PROJECTIONS:
        times = [product_s(ceilings, one, group, one.cost(phase)) for one in (base, target)]
        formats = {one.weight_format(TENSOR_OF[group]) for one in (base, target)}
        spread = _spread_of_products(ceilings, formats)
        yield from _pair(phase, group, times, spread, "cached skinny roofs")


def product_s(ceilings: Ceilings, one: Target, group: OpGroup, cost: StepCost) -> float | None:
    """None where no such roof was read, and of a fused kernel: the roofs are those of bare products."""
    if fused_kernel(group, one, cost.shape):
        return None
    rows = product_rows(group, cost.shape)
    rate = ceilings.skinny_read(one.weight_format(TENSOR_OF[group]), rows)
    return None if rate is None else cost.of_groups(group).traffic.weights / rate


def _attention(
    ceilings: Ceilings, base: Target, target: Target, phase: Phase
) -> Iterator[KernelTime]:
    times = [attention_s(ceilings, one, one.cost(phase)) for one in (base, target)]
    spread = max((one.spread for one in ceilings.steady_attention), default=0.0)
    yield from _pair(phase, OpGroup.ATTENTION, times, spread, "cached attention roofs")


def attention_s(ceilings: Ceilings, one: Target, cost: StepCost) -> float | None:
    """Of decoding tokens, in a cache; other geometries of heads have other roofs."""
    first = cost.shape.sequences[0]
    kv, model = one.settings.kv_cache, one.model
    geometry = (model.num_attention_heads, model.num_key_value_heads, model.head_dim)
    known = any((at.heads, at.kv_heads, at.head_dim) == geometry for at in ceilings.attention)
    if first.new_tokens > 1 or kv.layout is KvLayout.NONE or not known:
        return None
    stored = one.options.compute_dtype if kv.dtype.value == "as_weights" else kv.dtype.value
    rate = ceilings.attention_read(
        kv.layout.value, stored, one.settings.attention.kind.value, first.cached_tokens + 1
    )
    read = cost.of_groups(OpGroup.ATTENTION).traffic.kv_read
    return read / rate if rate and read else None


def _pair(
    phase: Phase, group: OpGroup, times: list[float | None], spread: float, method: str
) -> Iterator[KernelTime]:
    before, after = times
    if before and after:
        yield KernelTime(
            phase=phase, group=group, base_s=before, target_s=after, spread=spread, method=method
        )


def _spread_of_products(ceilings: Ceilings, formats: Collection[str]) -> float:
    known = (one.spread for one in ceilings.steady_skinny if one.format in formats)
    return max(known, default=0.0)


def _overheads(
    ceilings: Ceilings, base: Target, target: Target, phase: Phase
) -> Iterator[OverheadTime]:
    """Of a whole decode step; what of it lies inside which group nobody measured."""
    modes = [one.settings.execution.mode.value for one in (base, target)]
    costs = {one.mode: one for one in ceilings.host}
    if phase is Phase.DECODE and modes[0] != modes[1] and all(mode in costs for mode in modes):
        before, after = (host_s(costs[mode], base) for mode in modes)
        yield OverheadTime(phase=phase, group=None, base_s=before, target_s=after)


def host_s(cost: HostCost, one: Target) -> float:
    more = one.model.num_hidden_layers - cost.layers
    return max(cost.seconds_per_step + more * cost.seconds_per_layer, 0.0)
