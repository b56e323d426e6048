"""One step under other settings: the ledger recomputed, group by group."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final

from llmprof.analysis.fixed_cost import GroupFixedCost, in_graph
from llmprof.analysis.group_forecast import Forecast, GroupChange, Setting, forecast_group
from llmprof.analysis.host_forecast import (
    above_roof,
    enqueue_time,
    forecast_host,
    guessed_starts,
    hidden_host,
    replays,
    shared_starts,
    slower_than_skeleton,
    start_of_an_op,
    without_starts,
)
from llmprof.analysis.kernel_keys import kernel_key, phase_of_key
from llmprof.analysis.kernel_times import KernelTimes
from llmprof.analysis.limits import MIN_CONFIDENCE
from llmprof.analysis.op_roof import op_roof
from llmprof.analysis.phase_case import PhaseCase
from llmprof.analysis.phases import round_steps
from llmprof.analysis.prediction_target import Target
from llmprof.analysis.rates import Rates
from llmprof.analysis.small_ops import SizedTime, SmallOps
from llmprof.analysis.spans import Span, added, together
from llmprof.analysis.splits import PhaseSplits
from llmprof.analysis.statistics import relative_spread
from llmprof.analysis.step_split import GroupSplit, StepSplit, StepWork
from llmprof.schema.ceilings import FixedCost
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase, StepCost, StepShape

IN_THE_SKELETON: Final = (
    OpGroup.ATTENTION,
    OpGroup.KV_APPEND,
    OpGroup.ROPE,
    OpGroup.ACTIVATION,
    OpGroup.SAMPLING,
)
"""Groups that can be timed in a model without weights (`experiments.skeleton`), as they are started:
none of their sizes is the hidden size."""


@dataclass(frozen=True, slots=True)
class SplitCase:
    """A phase of the base run that has a split; nothing can be predicted from one without."""

    case: PhaseCase
    splits: PhaseSplits
    work: StepWork
    """With the fixed cost that the split has."""
    rates: Rates

    @classmethod
    def of(cls, case: PhaseCase) -> "SplitCase | None":
        if case.splits is None or case.rates is None:
            return None
        return cls(case, case.splits, case.splits.work, case.rates)


@dataclass(frozen=True, slots=True)
class Basis:
    """The base run, and what else a prediction rests on."""

    target: Target
    """Of the base's own settings."""
    cases: Mapping[Phase, SplitCase]
    kernels: KernelTimes
    fixed_cost: FixedCost
    """Of the device that is predicted for."""
    other_rates: Rates | None = None
    """Of another device; None to stay on this one."""
    other_cache_bytes: int | None = None

    @property
    def small_ops(self) -> SmallOps:
        groups: dict[OpGroup, dict[Phase, SizedTime]] = {}
        for phase, one in self.cases.items():
            for group, split in one.splits.center.groups.items():
                size = sum(op.traffic.total for op in one.work.of(group))
                groups.setdefault(group, {})[phase] = SizedTime(size, split.time_s)
        return SmallOps(groups)


@dataclass(frozen=True, slots=True)
class StepForecast:
    step: Span
    groups: Mapping[OpGroup, Forecast]
    host: Forecast
    split: StepSplit
    """The points, with the roofs of the target."""

    @property
    def is_measured(self) -> bool:
        """Every kernel that changed has a measured roof."""
        return all(one.is_measured for one in (*self.groups.values(), self.host))


def forecast_step(basis: Basis, target: Target, phase: Phase) -> StepForecast:
    """The median step of `phase`; the base run must have that phase."""
    one = basis.cases[phase]
    work = _target_work(basis, one, target, phase)
    rates = basis.other_rates or one.rates
    after = Setting(target, work, rates)
    change = replays(basis.target.settings, target.settings, phase)
    as_started = {
        group: forecast_group(_change(basis, group, phase, after))
        for group in one.splits.center.groups
    }
    groups = {
        group: above_roof(
            _started(basis, group, forecast, phase, change), forecast, after.link_s(group)
        )
        for group, forecast in as_started.items()
    }
    starts = together(
        groups[group].span.beyond(forecast.span) for group, forecast in as_started.items()
    )
    new = _new_groups(after, groups)
    groups |= new
    shared = together((_kernels(basis, phase, as_started, new), starts))
    alone = added(one.span for one in groups.values())
    # Starts may take more off a group's bound than the sum over the kernels has left there.
    device = Span.around(shared.point, shared.low, shared.high, alone.low, alone.high)
    host = forecast_host(
        basis.cases[_host_phase(basis, phase, work.cost.shape)].splits,
        change,
        phase,
        basis.kernels,
        other_device=basis.other_rates is not None,
    )
    step, host = _whole(basis, phase, device, host, change)
    return StepForecast(
        step=step.widened(_noise(one.case)),
        groups=groups,
        host=host,
        split=forecast_split(after, groups, step.point, host.span.point, one.splits.center.gaps_s),
    )


def _target_work(basis: Basis, one: SplitCase, target: Target, phase: Phase) -> StepWork:
    elsewhere = basis.other_rates is not None
    before, after = (in_graph(own.settings, phase) for own in (basis.target, target))
    fixed = one.work.fixed_cost
    if elsewhere or before is not after:
        fixed = GroupFixedCost.of(basis.fixed_cost, fixed.ops, in_graph=after)
    cache_bytes = basis.other_cache_bytes if elsewhere else one.work.cache_bytes
    cost = target.cost(phase)
    fixed = replace(fixed, ops=_ops_started(fixed.ops, one.work.cost, cost))
    return StepWork(cost=cost, fixed_cost=fixed, cache_bytes=cache_bytes)


def _ops_started(
    counted: Mapping[OpGroup, int] | None, before: StepCost, after: StepCost
) -> Mapping[OpGroup, int] | None:
    """As counted in the base; of a group that only the target has, one op for each call."""
    if counted is None:
        return None
    calls: Counter[OpGroup] = Counter()
    for op in after.ops:
        calls[op.group] += op.calls
    gone = {op.group for op in before.ops} - calls.keys()
    return dict(calls) | {group: ops for group, ops in counted.items() if group not in gone}


def _change(basis: Basis, group: OpGroup, phase: Phase, after: Setting) -> GroupChange:
    """Against the base's step of the same phase, or of the other one where only that ran the kernel."""
    source, timed = _source_phase(basis, group, phase, after), basis.kernels.of_group(phase, group)
    one = basis.cases[source]
    return GroupChange(
        group=group,
        phase=phase,
        split=one.splits.center.groups[group],
        base=Setting(basis.target, one.work, one.rates),
        target=after,
        timed=timed if timed and (timed.base_phase or phase) is source else None,
        small_ops=basis.small_ops,
        other_device=basis.other_rates is not None,
    )


def _source_phase(basis: Basis, group: OpGroup, phase: Phase, after: Setting) -> Phase:
    """As `kernel_keys.phase_with_kernel`, of the phases in which the base has timed the group."""
    timed = [one for one, case in basis.cases.items() if group in case.splits.center.groups]
    wanted = kernel_key(group, after.target, after.work.cost.shape)
    return phase_of_key(wanted, phase, {one: _key(basis, group, one) for one in timed})


def _host_phase(basis: Basis, phase: Phase, shape: StepShape) -> Phase:
    """The phase of the base whose steps are built alike: of one token per sequence, or of many."""

    def brings_many(one: StepShape) -> bool:
        return one.new_tokens > one.num_sequences

    alike = [
        other
        for other in (phase, *basis.cases)
        if brings_many(basis.cases[other].work.cost.shape) == brings_many(shape)
    ]
    return alike[0] if alike else phase


def _key(basis: Basis, group: OpGroup, phase: Phase) -> tuple[object, ...]:
    return kernel_key(group, basis.target, basis.cases[phase].work.cost.shape)


def _started(
    basis: Basis, group: OpGroup, forecast: Forecast, phase: Phase, change: int
) -> Forecast:
    """With its ops started in another way.

    Kernels of a device are timed back to back: what starting them costs there is alpha, of which a
    graph has its own, and what it costs the host is no part of a group (`hidden_host`).
    """
    if not change:
        return forecast
    one = basis.cases[phase]
    has_device_clock = one.splits.center.gaps_s is not None
    if has_device_clock and not basis.kernels.knows_overheads_by_group(phase):
        return forecast
    if basis.kernels.knows_overheads_by_group(phase):
        timed = basis.kernels.of_group(phase, group) is not None and group in IN_THE_SKELETON
        if timed:
            return forecast
        slower = slower_than_skeleton(one.splits, phase, basis.kernels)
        if change > 0:
            slower *= _faster_kernel(basis, phase, group)
        starts = basis.kernels.overhead(phase, group)
        return without_starts(group, forecast, starts, slower, change)
    ops = one.work.fixed_cost.ops or {}
    whole = basis.kernels.overhead(phase, None)
    num_ops = math.fsum(ops.values())
    if whole is not None and num_ops:  # of the step together: each op has its part of it
        saved_s = (whole.base_s - whole.target_s) / num_ops
        return shared_starts(group, forecast, saved_s, ops, change)
    counted = {other: own.work.fixed_cost.ops or {} for other, own in basis.cases.items()}
    cost = start_of_an_op(basis.small_ops, counted, phase, change, basis.fixed_cost.alpha_s)
    return guessed_starts(group, forecast, cost, ops, change)


def _faster_kernel(basis: Basis, phase: Phase, group: OpGroup) -> float:
    """Target over base of a kernel that was timed: its forecast has scaled the base's starts as well.

    Those are what replayed steps do without, so as much of them is saved as the forecast still holds.
    """
    timed = basis.kernels.of_group(phase, group)
    return timed.target_s / timed.base_s if timed is not None else 1.0


def _kernels(
    basis: Basis,
    phase: Phase,
    as_started: Mapping[OpGroup, Forecast],
    new: Mapping[OpGroup, Forecast],
) -> Span:
    """All groups. What a step adds to kernels that were timed by themselves is one unknown behind them.

    So is how the products' kernel takes to other rows or another format: it is the same one in all.
    """
    timed = [group for group in as_started if basis.kernels.of_group(phase, group) is not None]
    untimed = [group for group in as_started if group not in timed]
    products = [group for group in untimed if group in PROJECTIONS]
    return added(
        (
            together(as_started[group].span for group in timed),
            together(as_started[group].span for group in products),
            *(as_started[group].span for group in untimed if group not in PROJECTIONS),
            *(one.span for one in new.values()),
        )
    )


def _new_groups(after: Setting, known: Mapping[OpGroup, Forecast]) -> dict[OpGroup, Forecast]:
    """Groups that the base never ran, such as an append to a cache that it did not have."""
    found = {}
    for group in dict.fromkeys(op.group for op in after.work.cost.ops):
        if group not in known:
            least_s = after.work.fixed_cost_s(group) + after.link_s(group)
            forecast = Forecast(
                Span(2 * least_s, least_s, 8 * least_s), "new here: twice its roof assumed", False
            )
            found[group] = forecast
    return found


def _whole(
    basis: Basis, phase: Phase, device: Span, host: Forecast, change: int
) -> tuple[Span, Forecast]:
    """The step, and its exposed host time.

    Ops are started alike in the groups and between them: where that changes, what is not known of
    one start is not known of any, so it adds up as it is.
    """
    splits = basis.cases[phase].splits
    gaps_s = splits.center.gaps_s
    enqueue = enqueue_time(splits, other_device=basis.other_rates is not None)
    if gaps_s is None or enqueue is None:
        whole = together if change else added
        return whole((device, host.span)), host
    busy = added((device, Span.exactly(gaps_s)))
    step, exposed = hidden_host(busy, enqueue, change, basis.kernels.overhead(phase, None))
    return step, replace(host, span=exposed, basis="what enqueueing takes beyond the device's time")


def _noise(case: PhaseCase) -> float:
    """What two measurements leave open, relative: the base's own, and the target's, which will be as good.

    Moments of a shared machine differ as rounds do, over however many a median is taken: it is
    their dispersion that counts, and at least the interval of the median. A prediction's interval is one
    of 90 %; that of the measurement may be of more, and is scaled as if errors were normal.
    """
    step_s = case.measurement.step_s
    z = NormalDist().inv_cdf
    scale = z(0.95) / z((1 + step_s.confidence) / 2) if step_s.confidence > MIN_CONFIDENCE else 1.0
    of_median = scale * (step_s.high - step_s.low) / 2 / step_s.point
    rounds = [one.step_s for one in round_steps(case.clean.rounds, case.phase)]
    of_moments = z(0.95) * relative_spread(rounds) / (2 * z(0.75))
    return math.sqrt(2) * max(of_median, of_moments)


def forecast_split(
    after: Setting,
    groups: Mapping[OpGroup, Forecast],
    step_s: float,
    host_s: float,
    gaps_s: float | None,
) -> StepSplit:
    """The predicted step as the ledger splits it, at the points."""
    return StepSplit(
        step_s=step_s,
        groups={
            group: GroupSplit(
                time_s=forecast.span.point,
                fixed_cost_s=after.work.fixed_cost_s(group),
                roofs=tuple(
                    op_roof(op, after.rates, after.work.cache_bytes) for op in after.work.of(group)
                ),
            )
            for group, forecast in groups.items()
        },
        host_s=host_s,
        gaps_s=gaps_s,
    )
