"""Tier A: a step from ceilings and the model alone. Nobody has run it, so its kernels are assumed."""

from collections.abc import Iterator
from typing import Final

from llmprof.analysis.cached_roofs import attention_s, host_s, product_s
from llmprof.analysis.fixed_cost import GroupFixedCost, in_graph
from llmprof.analysis.group_forecast import Forecast, Setting
from llmprof.analysis.limits import SATURATED, UNSATURATED
from llmprof.analysis.naive import bare_roofline_s
from llmprof.analysis.paper_device import PaperDevice
from llmprof.analysis.phase_forecast import (
    group_records,
    largest_limit,
    part_records,
    place_of,
    tokens_of,
)
from llmprof.analysis.prediction import capacity_caveats, largest_fitting
from llmprof.analysis.prediction_target import (
    Target,
    capacity_of,
    is_torch_compiled,
    make_target,
    only_measured,
)
from llmprof.analysis.spans import Span, ratio_of, together
from llmprof.analysis.step_forecast import StepForecast, forecast_split
from llmprof.analysis.step_split import StepWork
from llmprof.architectures.manifest import FLOAT_BYTES
from llmprof.costs.fusion import fused_rows_of
from llmprof.costs.weight_layout import float_dtype, laid_out
from llmprof.planning.inspection import model_caveats
from llmprof.schema.ceilings import Ceilings
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase, StepCost
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.prediction import (
    KernelBenchmarks,
    NaiveForecasts,
    PhasePrediction,
    Prediction,
    Tier,
)
from llmprof.schema.settings import Quantization, RunConfig, WeightDtype, WeightSource
from llmprof.units import number_of, percent, seconds

_ASSUMPTIONS: Final = (
    f"kernels without a measured roof reach {percent(SATURATED)} of the device's, at worst "
    f"{percent(UNSATURATED)}: nobody has run this model here",
    "ops between the matrix products take the fixed cost of an op and their bytes at the read ceiling",
)
_LONGEST_START_S: Final = 5e-6
"""Of one kernel from an eager host, as of what GPUs of the last years need: assumed, and only a bound."""
_FROM_A_DATASHEET: Final = (
    "the roofs are the vendor's peaks, which no kernel reaches whole; measured ceilings make a better "
    "forecast",
    f"starting an op costs nothing, or at most {seconds(_LONGEST_START_S)}: no datasheet states it, and "
    "of a small model at a small batch it is most of a step",
    "all of the device's memory is free: a driver keeps some, and llmprof plan keeps a tenth back",
)


def paper_target(
    model: ModelConfig, stored: WeightManifest, settings: RunConfig, device: PaperDevice
) -> Target:
    """A model as found, as the engine would keep it; packed files become bf16, as they do there.

    Without an `environment` the device has every kernel of the engine.

    Raises:
        InputError: more tokens than the model has positions.
        CapabilityError: settings whose steps cannot be predicted.
    """
    if is_torch_compiled(settings, on_gpu=device.on_gpu):
        raise only_measured()
    dtype = settings.weights.dtype.value
    if settings.weights.dtype is WeightDtype.AS_STORED:
        dtype = float_dtype(stored)
    return make_target(
        settings,
        model,
        laid_out(model, settings.weights, dtype),
        dtype,
        decode_kernel=device.has_decode_kernel,
        packed_rows=device.packed_rows,
        fp8_arithmetic=device.multiplies_fp8,
        fused_rows=fused_rows_of(settings.execution, dtype, trouble=device.fused_trouble),
    )


def predict_on_paper(
    target: Target, device: PaperDevice, *, stored: WeightManifest | None = None
) -> Prediction:
    """A model that was never run, on a device that is known by its ceilings or its datasheet.

    `stored`: how its files hold the weights, where that is known.

    Raises:
        InputError: nothing is known of reading, or of matmuls in the model's dtype.
    """
    capacity = capacity_of(target, device.available_bytes)
    fitting = largest_fitting(target, capacity)
    phases = (
        () if fitting is None else tuple(_phase(fitting, device, phase) for phase in fitting.phases)
    )
    return Prediction(
        tier=Tier.A,
        base=target.model.name,
        device=device.name,
        changes=(),
        settings=(fitting or target).settings,
        capacity=capacity,
        phases=phases,
        benchmarks=KernelBenchmarks(),
        assumptions=(
            *_ASSUMPTIONS,
            *(() if device.sheet is None else _FROM_A_DATASHEET),
            *_unpacked(stored, target),
        ),
        caveats=(*capacity_caveats(target, capacity), *model_caveats(target.model)),
    )


def _unpacked(stored: WeightManifest | None, target: Target) -> Iterator[str]:
    """Where the files take fewer bytes than what is predicted."""
    packed = {} if stored is None else {one.stored_dtype: None for one in stored.tensors}
    names = ", ".join(name for name in packed if name not in FLOAT_BYTES)
    weights = target.settings.weights
    kept = weights.quantization is Quantization.NONE and weights.source is WeightSource.FILE
    if names and kept:
        yield (
            f"weights stored as {names} count as {target.options.compute_dtype}, which they are unpacked "
            "to when they are loaded; llmprof plan counts them as stored"
        )


def _phase(target: Target, device: PaperDevice, phase: Phase) -> PhasePrediction:
    cost = target.cost(phase)
    work = StepWork(
        cost=cost,
        fixed_cost=GroupFixedCost.of(
            device.fixed_cost, None, in_graph=in_graph(target.settings, phase)
        ),
        cache_bytes=device.cache_bytes,
    )
    setting = Setting(target, work, device.rates(cost))
    groups = {
        group: _group(group, setting, device.ceilings)
        for group in dict.fromkeys(op.group for op in cost.ops)
    }
    host = _starts(cost) if device.ceilings is None else _host(target, device.ceilings, phase)
    # One unknown is behind all of them, how good the kernels are: bounds add up as they are.
    step = together([*(one.span for one in groups.values()), host.span])
    split = forecast_split(setting, groups, step.point, host.span.point, None)
    forecast = StepForecast(step, groups, host, split)
    limit, share = largest_limit(forecast)
    return PhasePrediction(
        phase=phase,
        tier=Tier.A,
        shape=cost.shape,
        base_step_s=None,
        step_s=step.interval(),
        speedup=None,
        new_tokens_per_s=ratio_of(tokens_of(cost, phase), step),
        limit=limit,
        limit_share=share,
        groups=tuple(group_records({}, None, forecast)),
        parts=tuple(part_records({}, forecast)),
        naive=NaiveForecasts(
            byte_ratio_step_s=None, roofline_step_s=bare_roofline_s(cost, setting.rates)
        ),
        place=place_of(cost, setting.rates, work.cache_bytes),
    )


def _group(group: OpGroup, setting: Setting, ceilings: Ceilings | None) -> Forecast:
    fixed_s, link_s = setting.work.fixed_cost_s(group), setting.link_s(group)
    roof_s = fixed_s + link_s
    known = None if ceilings is None else _kernel_s(group, setting, ceilings)
    if known is not None:
        point = max(known, roof_s)
        return Forecast(
            Span.around(point, roof_s, fixed_s + known / SATURATED), "its kernel's measured roof"
        )
    if group in PROJECTIONS or group is OpGroup.ATTENTION:
        return Forecast(
            Span(fixed_s + link_s / SATURATED, roof_s, fixed_s + link_s / UNSATURATED),
            f"{percent(SATURATED)} of the roof assumed",
            is_measured=False,
        )
    size = sum(op.traffic.total for op in setting.work.of(group))
    most_s = fixed_s + size / setting.rates.read_bytes_per_s
    return Forecast(
        Span((roof_s + most_s) / 2, roof_s, most_s), "between its fixed cost and its bytes", False
    )


def _kernel_s(group: OpGroup, setting: Setting, ceilings: Ceilings) -> float | None:
    target, cost = setting.target, setting.work.cost
    if group in PROJECTIONS:
        return product_s(ceilings, target, group, cost)
    return attention_s(ceilings, target, cost) if group is OpGroup.ATTENTION else None


def _starts(cost: StepCost) -> Forecast:
    """What starting the ops may add; a host that runs ahead of the device hides it."""
    ops = sum(op.calls for op in cost.ops)
    return Forecast(
        Span(0.0, 0.0, ops * _LONGEST_START_S),
        f"starting {number_of(ops, 'op')}: left out, at most {seconds(_LONGEST_START_S)} each",
        is_measured=False,
    )


def _host(target: Target, ceilings: Ceilings, phase: Phase) -> Forecast:
    costs = {one.mode: one for one in ceilings.host}
    cost = costs.get(target.settings.execution.mode.value)
    if cost is None or phase is not Phase.DECODE:
        return Forecast(Span.exactly(0.0), "left out: nobody measured it here", False)
    time_s = host_s(cost, target)
    return Forecast(Span(time_s / 2, 0.0, time_s), "part of a step that computes nothing")
