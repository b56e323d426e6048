"""One phase of a prediction: the forecast of its step as a record."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from llmprof.analysis.cached_roofs import cached_benchmarks
from llmprof.analysis.device_rates import rates_of
from llmprof.analysis.kernel_times import KernelTimes
from llmprof.analysis.naive import naive_forecasts
from llmprof.analysis.op_roof import last_level_cache_bytes, roof_bytes
from llmprof.analysis.prediction_target import Target
from llmprof.analysis.rates import Rates
from llmprof.analysis.spans import ratio_of
from llmprof.analysis.step_forecast import Basis, SplitCase, StepForecast, forecast_step
from llmprof.analysis.step_split import GroupSplit
from llmprof.schema.ceilings import Ceilings
from llmprof.schema.cost import OpGroup, Phase, StepCost
from llmprof.schema.ledger import Part
from llmprof.schema.prediction import (
    GroupPrediction,
    KernelBenchmarks,
    PartPrediction,
    PhasePrediction,
    StepPlace,
    Tier,
)
from llmprof.schema.run import RunRecord
from llmprof.schema.verdict import Limit


@dataclass(frozen=True, slots=True)
class PhaseBase:
    """The run that is predicted from."""

    record: RunRecord
    target: Target
    cases: Mapping[Phase, SplitCase]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another device, known by its ceilings."""

    ceilings: Ceilings


def predict_phase(
    base: PhaseBase,
    target: Target,
    phase: Phase,
    benchmarks: KernelBenchmarks,
    elsewhere: Elsewhere | None,
) -> PhasePrediction:
    """The median step of a phase that the base run has."""
    basis = _basis(base, target, phase, benchmarks, elsewhere)
    one = base.cases[phase]
    center = one.splits.center
    forecast = forecast_step(basis, target, phase)
    cost, step_s = target.cost(phase), one.case.measurement.step_s
    limit, share = largest_limit(forecast)
    return PhasePrediction(
        phase=phase,
        tier=Tier.C if forecast.is_measured and elsewhere is None else Tier.B,
        shape=cost.shape,
        base_step_s=step_s,
        step_s=forecast.step.interval(),
        speedup=ratio_of(step_s.point, forecast.step),
        new_tokens_per_s=ratio_of(tokens_of(cost, phase), forecast.step),
        limit=limit,
        limit_share=share,
        groups=tuple(group_records(center.groups, center.host_s, forecast)),
        parts=tuple(part_records(center.parts_s(), forecast)),
        naive=naive_forecasts(
            one.work.cost,
            cost,
            one.rates,
            basis.other_rates or one.rates,
            base_step_s=step_s.point,
        ),
        base_place=place_of(one.work.cost, one.rates, one.work.cache_bytes),
        place=place_of(
            cost,
            basis.other_rates or one.rates,
            one.work.cache_bytes if elsewhere is None else basis.other_cache_bytes,
        ),
    )


def _basis(
    base: PhaseBase,
    target: Target,
    phase: Phase,
    benchmarks: KernelBenchmarks,
    elsewhere: Elsewhere | None,
) -> Basis:
    """What was measured beside the run goes before what the cache has."""
    if elsewhere is None:
        cached = cached_benchmarks(base.record.ceilings, base.target, target, phase)
        overheads = benchmarks.overheads or cached.overheads
        given = KernelBenchmarks(kernels=benchmarks.kernels, overheads=overheads)
        return Basis(
            base.target,
            base.cases,
            KernelTimes.of(given, cached.kernels),
            base.record.ceilings.fixed_cost,
        )
    ceilings = elsewhere.ceilings
    return Basis(
        base.target,
        base.cases,
        KernelTimes(),
        ceilings.fixed_cost,
        other_rates=rates_of(ceilings, target.cost(phase)),
        other_cache_bytes=last_level_cache_bytes(ceilings.environment, ceilings.bandwidth),
    )


def place_of(cost: StepCost, rates: Rates, cache_bytes: int | None) -> StepPlace | None:
    """On the roofline; None for a step that need not move anything."""
    required = roof_bytes(cost.ops, cache_bytes)
    flops: dict[str, float] = defaultdict(float)
    for op in cost.ops:
        flops[op.compute_dtype] += op.flops
    if not required:
        return None
    dtype = max(flops, key=lambda one: flops[one])
    return StepPlace(
        flops=sum(flops.values()),
        bytes_required=required,
        read_bytes_per_s=rates.read_bytes_per_s,
        matmul_flops_per_s=rates.flops_per_s(dtype),
        matmul_dtype=dtype,
    )


def tokens_of(cost: StepCost, phase: Phase) -> int:
    """What a step is worth: its prompt tokens, or one for each sequence."""
    return cost.shape.new_tokens if phase is Phase.PREFILL else cost.shape.num_sequences


def largest_limit(forecast: StepForecast) -> tuple[Limit, float]:
    """Where most of the predicted step goes, and its share."""
    limits = forecast.split.limits_s()
    largest = max(limits, key=lambda limit: limits[limit])
    return largest, limits[largest] / forecast.split.step_s


def group_records(
    before: Mapping[OpGroup, GroupSplit], host_s: float | None, forecast: StepForecast
) -> Iterator[GroupPrediction]:
    """Largest first, the time between them last."""
    ordered = sorted(forecast.groups.items(), key=lambda item: -item[1].span.point)
    for group, found in ordered:
        yield GroupPrediction(
            group=group,
            base_s=before[group].time_s if group in before else None,
            predicted_s=found.span.interval(),
            basis=found.basis,
            is_measured=found.is_measured,
        )
    yield GroupPrediction(
        group=None,
        base_s=host_s,
        predicted_s=forecast.host.span.interval(),
        basis=forecast.host.basis,
        is_measured=forecast.host.is_measured,
    )


def part_records(before: Mapping[Part, float], forecast: StepForecast) -> Iterator[PartPrediction]:
    for part, predicted_s in forecast.split.parts_s().items():
        yield PartPrediction(part=part, base_s=before.get(part), predicted_s=predicted_s)
