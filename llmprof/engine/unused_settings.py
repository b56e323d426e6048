"""Settings that change nothing in a run are refused: ignored, they would look like an answer."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from llmprof.errors import CapabilityError
from llmprof.schema.settings import (
    AttentionKind,
    BatchingPolicy,
    KvLayout,
    LengthDistribution,
    Pass,
    RoutingKind,
    RunConfig,
    WorkloadKind,
)

_DEFAULTS: Final = RunConfig(model="any")
_LENGTHS: Final = ("workload.requests", "workload.lengths")


def check_all_used(config: RunConfig) -> None:
    """Refuse settings that differ from their defaults and have no effect in this run.

    `gate` and `sweep` are left alone: one settings file serves `llmprof run`, `gate` and `sweep`.

    Raises:
        CapabilityError: names the keys, and what makes them idle.
    """
    for keys, because, remedy in _idle(config):
        changed = [key for key in keys if _differs(config, key)]
        if changed:
            verb = "has" if len(changed) == 1 else "have"
            raise CapabilityError(
                f"{', '.join(changed)} {verb} no effect: {because}",
                remedy=f"{remedy}, or remove it",
            )


def _differs(config: RunConfig, key: str) -> bool:
    value = attrgetter(key)
    return bool(value(config) != value(_DEFAULTS))


def _idle(config: RunConfig) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Keys, why they are idle, and what would use them."""
    fixed = config.workload.kind is WorkloadKind.FIXED
    static = config.batching.policy is BatchingPolicy.STATIC
    yield from _idle_in_the_workload(config)
    if fixed and static:
        batching = ("batching.max_sequences", "batching.max_step_tokens")
        yield batching, "fixed work is one static batch", "Set batching.policy=continuous"
    elif static:
        keys = ("batching.max_step_tokens",)
        yield keys, "batching.policy is static", "Set batching.policy=continuous"
    if config.routing.kind is not RoutingKind.ZIPF:
        because = f"routing.kind is {config.routing.kind.value}"
        yield ("routing.zipf_exponent",), because, "Set routing.kind=zipf"
    if config.routing.kind is not RoutingKind.RECORDED:
        because = f"routing.kind is {config.routing.kind.value}"
        yield ("routing.file",), because, "Set routing.kind=recorded"
    if config.kv_cache.layout is not KvLayout.PAGED:
        because = f"kv_cache.layout is {config.kv_cache.layout.value}"
        yield ("kv_cache.block_tokens",), because, "Set kv_cache.layout=paged"
    if config.attention.kind is not AttentionKind.FLASH:
        because = f"attention.kind is {config.attention.kind.value}"
        yield ("attention.backend",), because, "Set attention.kind=flash"
    elif config.kv_cache.layout is KvLayout.NONE:
        because = "kernels of a backend read a cache, and kv_cache.layout is none"
        yield ("attention.backend",), because, "Set kv_cache.layout=contiguous or paged"
    if not (fixed and static):
        because = "interventions change fixed work, and this run serves requests"
        yield ("measure.confirm",), because, "Set workload.kind=fixed and batching.policy=static"
    if Pass.GROUPED not in config.measure.passes:
        because = "without the grouped pass no ledger forecasts anything"
        yield ("measure.confirm",), because, "Add grouped to measure.passes"


def _idle_in_the_workload(config: RunConfig) -> Iterator[tuple[tuple[str, ...], str, str]]:
    workload = config.workload
    if workload.kind is WorkloadKind.FIXED:
        trace = (*_LENGTHS, "workload.arrival_rate_per_s", "workload.file")
        yield trace, "workload.kind is fixed", "Set workload.kind=trace"
        return
    shape = ("workload.batch", "workload.prompt_tokens", "workload.output_tokens")
    yield shape, "workload.kind is trace", "Set workload.lengths and batching.max_sequences"
    if workload.file is not None:
        yield _LENGTHS, "workload.file gives the requests", "Remove workload.file"
        return
    for name in ("prompt", "output"):
        distribution: LengthDistribution = getattr(workload.lengths, name)
        prefix = f"workload.lengths.{name}"
        because = f"{prefix}.kind is {distribution.kind}"
        if distribution.kind != "log_normal":
            yield (f"{prefix}.sigma",), because, f"Set {prefix}.kind=log_normal"
        if distribution.kind == "uniform":
            yield (f"{prefix}.mean",), because, f"Set {prefix}.low and {prefix}.high"
