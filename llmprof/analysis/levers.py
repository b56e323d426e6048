"""Every switch that a run could flip, predicted and ranked."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from llmprof import units
from llmprof.analysis.crossings import find_crossings
from llmprof.analysis.phase_case import PhaseCase
from llmprof.analysis.prediction import BaseRun, predict
from llmprof.analysis.prediction_target import changes_between, multiplies_fp8
from llmprof.analysis.step_forecast import SplitCase
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase
from llmprof.schema.levers import Lever, Levers, NoLever
from llmprof.schema.prediction import Interval, PhasePrediction, SettingChange
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import (
    AttentionKind,
    ExecutionMode,
    Fusion,
    KvDtype,
    KvLayout,
    Quantization,
    RunConfig,
)
from llmprof.schema.verdict import Limit

MIN_GAIN: Final = 0.03
"""Less than this is not worth a switch, nor told apart from the run's own noise."""
_LARGER_BATCHES: Final = (2, 8)
_SIDES: Final = {
    Limit.MEMORY: "reading memory",
    Limit.COMPUTE: "arithmetic",
    Limit.ELEMENTWISE: "work in cache",
    Limit.FIXED_COST: "the fixed cost of ops",
    Limit.HOST: "the host",
}


@dataclass(frozen=True, slots=True)
class Switch:
    """A setting to flip, and the part of a step that it works on."""

    label: str
    settings: RunConfig
    works_on: tuple[OpGroup, ...]
    """Empty for the time between the groups."""
    what: str


def find_levers(record: RunRecord, cases: Sequence[PhaseCase]) -> Levers | None:
    """None for work that cannot be predicted: a served trace, or no model, or no split."""
    split = {one.case.phase: one for case in cases if (one := SplitCase.of(case))}
    if not split or record.stated_costs:
        return None
    try:
        base = BaseRun.of_cases(record, split)
    except (CapabilityError, InputError):
        return None
    helpful: list[Lever] = []
    unhelpful: list[NoLever] = []
    for switch in _switches(record):
        found = _judge(base, switch)
        if isinstance(found, Lever):
            helpful.append(found)
        else:
            unhelpful.append(found)
    return Levers(
        helpful=tuple(sorted(helpful, key=lambda one: -one.gain.point)),
        unhelpful=tuple(unhelpful),
        crossings=find_crossings(base),
    )


def _switches(record: RunRecord) -> Iterator[Switch]:
    settings, on_cpu = record.settings, record.environment.gpu is None
    yield from _weight_switches(settings, in_fp8=multiplies_fp8(record.ceilings))
    yield from _cache_switches(settings)
    if settings.attention.kind is AttentionKind.STANDARD:
        kind = settings.attention.model_copy(update={"kind": AttentionKind.FLASH})
        flash = settings.model_copy(update={"attention": kind})
        yield Switch("flash attention", flash, (OpGroup.ATTENTION,), "attention")
    if settings.execution.mode is ExecutionMode.EAGER:
        mode = ExecutionMode.COMPILED if on_cpu else ExecutionMode.CUDA_GRAPH
        execution = settings.execution.model_copy(update={"mode": mode})
        replayed = settings.model_copy(update={"execution": execution})
        if settings.kv_cache.layout is not KvLayout.NONE:
            yield Switch(f"{mode.value} steps", replayed, (), "starting ops from Python")
    if settings.execution.fused is Fusion.OFF and not on_cpu:
        execution = settings.execution.model_copy(update={"fused": Fusion.AUTO})
        fused = settings.model_copy(update={"execution": execution})
        yield Switch("fused kernels for few rows", fused, (), "starting kernels")
    for times in _LARGER_BATCHES:
        batch = times * settings.workload.batch
        workload = settings.workload.model_copy(update={"batch": batch})
        larger = settings.model_copy(update={"workload": workload})
        yield Switch(f"batch {batch}", larger, PROJECTIONS, "reading weights once for all")


def _weight_switches(settings: RunConfig, *, in_fp8: bool) -> Iterator[Switch]:
    """fp8 takes as many bytes as int8: it is worth a try where the device also multiplies in it."""
    weights = settings.weights
    narrow = (Quantization.FP8,) if in_fp8 else ()
    for quantization in (*narrow, Quantization.INT8, Quantization.INT4):
        smaller = weights.quantization is Quantization.NONE or (
            quantization is Quantization.INT4 and weights.quantization is not Quantization.INT4
        )
        if smaller:
            packed = weights.model_copy(update={"quantization": quantization, "group_size": None})
            changed = settings.model_copy(update={"weights": packed})
            yield Switch(f"{quantization.value} weights", changed, PROJECTIONS, "the projections")


def _cache_switches(settings: RunConfig) -> Iterator[Switch]:
    kv = settings.kv_cache
    if kv.layout is KvLayout.NONE:
        cached = kv.model_copy(update={"layout": KvLayout.CONTIGUOUS})
        changed = settings.model_copy(update={"kv_cache": cached})
        everything = (*PROJECTIONS, OpGroup.ATTENTION)
        yield Switch("a KV cache", changed, everything, "computing the context again")
        return
    if kv.dtype is KvDtype.AS_WEIGHTS:
        packed = kv.model_copy(update={"dtype": KvDtype.INT8})
        changed = settings.model_copy(update={"kv_cache": packed})
        yield Switch("int8 KV cache", changed, (OpGroup.ATTENTION,), "attention")
    if kv.layout is KvLayout.CONTIGUOUS:
        paged = kv.model_copy(update={"layout": KvLayout.PAGED})
        changed = settings.model_copy(update={"kv_cache": paged})
        yield Switch("paged KV cache", changed, (OpGroup.ATTENTION,), "attention")


def _judge(base: BaseRun, switch: Switch) -> Lever | NoLever:
    changes = changes_between(base.record.settings, switch.settings)
    change = changes[0]
    try:
        found = predict(base, switch.settings)
    except (CapabilityError, InputError) as error:
        return NoLever(change=change, label=switch.label, reason=error.line())
    if not found.capacity.fits:
        return NoLever(
            change=change,
            label=switch.label,
            reason=f"does not fit: {found.capacity.largest_batch} sequences do",
        )
    gains = {one.phase: _gain(base, one) for one in found.phases}
    if not gains:
        return NoLever(change=change, label=switch.label, reason="no phase of it was measured")
    best = max(found.phases, key=lambda one: gains[one.phase].point)
    if gains[best.phase].point < 1 + MIN_GAIN:
        reason = _why_not(base, switch, gains)
        return NoLever(change=change, label=switch.label, reason=reason)
    return _lever(switch, change, best, gains)


def _lever(
    switch: Switch, change: SettingChange, best: PhasePrediction, gains: dict[Phase, Interval]
) -> Lever:
    others = [gain for phase, gain in gains.items() if phase is not best.phase]
    gain = gains[best.phase]
    assert best.speedup is not None
    return Lever(
        change=change,
        label=switch.label,
        phase=best.phase,
        gain=gain,
        step_speedup=best.speedup,
        other_phase_gain=others[0] if others else None,
        tier=best.tier,
        then=best.limit,
        then_share=best.limit_share,
        sentence=_sentence(switch, best, gain),
    )


def _gain(base: BaseRun, one: PhasePrediction) -> Interval:
    """Tokens per second against the run's."""
    now = base.cases[one.phase].case.measurement.new_tokens_per_s.point
    rate = one.new_tokens_per_s
    return Interval(point=rate.point / now, low=rate.low / now, high=rate.high / now)


def _sentence(switch: Switch, best: PhasePrediction, gain: Interval) -> str:
    side = _SIDES.get(best.limit, best.limit.value)
    return (
        f"{switch.label}: {units.ratio(gain.point)} {best.phase.value} tok/s "
        f"[{units.significant(gain.low)}, {units.significant(gain.high)}]; "
        f"then {units.percent(best.limit_share)} is {side}"
    )


def _why_not(base: BaseRun, switch: Switch, gains: Mapping[Phase, Interval]) -> str:
    """The share of the step that the switch works on, where that is small; else that it does not pay.

    `gains` are those of tokens per second: the step of a larger batch is a longer one.
    """
    phase = Phase.DECODE if Phase.DECODE in base.cases else next(iter(base.cases))
    center = base.cases[phase].splits.center
    works_on_s = center.time_of(switch.works_on) if switch.works_on else center.host_s
    share = works_on_s / center.step_s
    if switch.settings.kv_cache.layout is not base.record.settings.kv_cache.layout:
        return (
            "a fixed batch that fits gains no time by its layout: pages let more sequences in where "
            "lengths differ"
        )
    if share < 0.2:
        return f"{switch.what} takes {units.percent(share)} of a {phase.value} step"
    return (
        f"predicted {units.ratio(gains[phase].point)} {phase.value} tok/s: what {switch.what} would gain "
        "is lost elsewhere in the step"
    )
