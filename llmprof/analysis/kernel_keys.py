"""Which kernel an op group runs: two steps with one key differ in the amount of work alone."""

from collections.abc import Mapping
from typing import Final

from llmprof.analysis.prediction_target import PACKED_ROWS, Target
from llmprof.costs.fusion import takes_in
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase, StepShape
from llmprof.schema.settings import KvLayout

KernelKey = tuple[object, ...]

TENSOR_OF: Final = {
    OpGroup.QKV_PROJECTION: "q_proj",
    OpGroup.OUTPUT_PROJECTION: "o_proj",
    OpGroup.GATE_UP_PROJECTION: "gate_proj",
    OpGroup.DOWN_PROJECTION: "down_proj",
    OpGroup.LM_HEAD: "lm_head",
}


def kernel_key(group: OpGroup, target: Target, shape: StepShape) -> KernelKey:
    """Everything that picks the kernel of `group` in a step of `shape`."""
    if group in PROJECTIONS:
        return _product_key(group, target, shape)
    if group is OpGroup.KV_APPEND:
        return (*_cache_key(target, shape), fused_kernel(group, target, shape))
    if group is OpGroup.ATTENTION:
        return _cache_key(target, shape)
    return (target.options.compute_dtype, _few_rows(shape.new_tokens, target))


def phase_with_kernel(group: OpGroup, base: Target, target: Target, phase: Phase) -> Phase:
    """Of the base's phases the one that runs what `target` runs in `phase`: see `phase_of_key`."""
    keys = {one: kernel_key(group, base, base.cost(one).shape) for one in base.phases}
    return phase_of_key(kernel_key(group, target, target.cost(phase).shape), phase, keys)


def phase_of_key(wanted: KernelKey, phase: Phase, keys: Mapping[Phase, KernelKey]) -> Phase:
    """The phase whose key is the wanted one, `phase` itself first; `phase` too where none is.

    The time of the very kernel in a step says more than a benchmark that leads from another one to it.
    """
    alike = (one for one in dict.fromkeys((phase, *keys)) if keys.get(one) == wanted)
    return next(alike, phase)


def product_rows(group: OpGroup, shape: StepShape) -> int:
    """Rows of activations of a projection's products."""
    return shape.logit_rows if group is OpGroup.LM_HEAD else shape.new_tokens


def fused_kernel(group: OpGroup, target: Target, shape: StepShape) -> bool:
    """Whether a step of `shape` runs a kernel of `group` that is several ops."""
    return takes_in(group, target.model, product_rows(group, shape), target.options)


def _product_key(group: OpGroup, target: Target, shape: StepShape) -> KernelKey:
    """Few rows have a kernel for each number of them; from there on one library product serves all."""
    rows = product_rows(group, shape)
    size = rows if _few_rows(rows, target) else "many rows"
    return (target.weight_format(TENSOR_OF[group]), size, fused_kernel(group, target, shape))


def _few_rows(rows: int, target: Target) -> bool:
    return rows <= (target.options.packed_rows or PACKED_ROWS)


def _cache_key(target: Target, shape: StepShape) -> KernelKey:
    first = shape.sequences[0]
    kv = target.settings.kv_cache
    decodes = first.new_tokens == 1 and first.cached_tokens > 0
    reads = kv.layout if decodes or first.cached_tokens else "new rows"
    blocks = kv.block_tokens if kv.layout is KvLayout.PAGED else None
    stored = kv.dtype if decodes else None
    return (target.settings.attention.kind, decodes, reads, blocks if decodes else None, stored)
