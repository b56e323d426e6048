"""What starting ops costs under other settings: between the groups, inside them, under the device."""

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Final

from llmprof.analysis.fixed_cost import HAVE_LINKS
from llmprof.analysis.group_forecast import Forecast
from llmprof.analysis.kernel_times import KernelTimes
from llmprof.analysis.small_ops import SmallOps
from llmprof.analysis.spans import Span
from llmprof.analysis.splits import PhaseSplits
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase
from llmprof.schema.prediction import OverheadTime
from llmprof.schema.settings import ExecutionMode, RunConfig

_STARTS_OFF: Final = 0.25
_START_OF_SMALL_OP: Final = 0.5
"""Share of the least small op of a prefill that is its start: the rest is work on many rows. An op of eager
decode steps of three models (4 to 30 layers, prompts of 64 to 512) took 0.3 to 0.9 of it."""
_MOST_ALPHAS: Final = 64
"""How many times the cheapest op of torch an op of the engine may take with the Python around it: those of
the same three models took 23 to 66."""
_STARTED_OTHERWISE: Final = {
    1: "decode steps are replayed: their ops are no longer started from Python",
    -1: "decode steps are no longer replayed: their ops are started from Python again",
}
"""By `replays`."""


def replays(before: RunConfig, after: RunConfig, phase: Phase) -> int:
    """1 where the steps of `phase` are replayed from now on, -1 where no longer, 0 as before."""
    if phase is not Phase.DECODE:
        return 0
    was, will = (one.execution.mode is not ExecutionMode.EAGER for one in (before, after))
    return int(will) - int(was)


def without_starts(
    group: OpGroup, forecast: Forecast, starts: OverheadTime | None, slower: float, change: int
) -> Forecast:
    """A group whose ops are started in another way, by what its skeleton took either way.

    A group that does hardly more than start its ops changes as its skeleton does. Of a product, only
    the starts change: `slower` times what the skeleton saves, where `slower` says how many times longer
    starts take in the step that pays for them.
    """
    if starts is None:
        return forecast
    if group in PROJECTIONS:
        saved_s = slower * (starts.base_s - starts.target_s)
        point, more, less = (
            max(forecast.span.point - part * saved_s, 0.0) for part in (1.0, 1.5, 0.5)
        )
    else:
        point, more, less = _as_the_skeleton(forecast.span.point, starts)
    moved = forecast.span.moved(Span.around(point, more, less))
    span = replace(moved, low=max(moved.low, 0.0))
    return replace(forecast, span=span, basis=f"{forecast.basis}; {_STARTED_OTHERWISE[change]}")


def _as_the_skeleton(time_s: float, starts: OverheadTime) -> tuple[float, float, float]:
    """`time_s` x the skeleton's ratio, and with a quarter more or less of it as an exponent."""
    if not starts.base_s or not starts.target_s:
        return time_s, time_s, time_s
    ratio = starts.target_s / starts.base_s
    return time_s * ratio, time_s * ratio**1.25, time_s * ratio**0.75


def slower_than_skeleton(splits: PhaseSplits, phase: Phase, kernels: KernelTimes) -> float:
    """How many times longer the base's own small groups take than those of its skeleton.

    They hardly do more than start their ops, in the step as in the skeleton: what makes them slower
    there makes the starts of products slower too.
    """
    pairs = [
        (split.time_s, known.base_s)
        for group, split in splits.center.groups.items()
        if group not in PROJECTIONS and (known := kernels.overhead(phase, group)) is not None
    ]
    measured_s = sum(base_s for _, base_s in pairs)
    return sum(time_s for time_s, _ in pairs) / measured_s if measured_s else 1.0


def guessed_starts(
    group: OpGroup, forecast: Forecast, cost: Forecast, ops: Mapping[OpGroup, int], change: int
) -> Forecast:
    """As `without_starts` where it was not measured: `cost` for each op."""
    one, start = forecast.span, cost.span
    saved_s = min(change * start.point * ops.get(group, 0), one.point)
    bounds = (
        saved_s * bound / start.point if start.point else 0.0 for bound in (start.low, start.high)
    )
    least, most = sorted(bounds)
    point = one.point - saved_s
    span = Span.around(point, max(one.low - most, 0.0), max(one.high - least, one.low))
    basis = f"{forecast.basis}; {_STARTED_OTHERWISE[change]}, {cost.basis}"
    return Forecast(span, basis, False)


def shared_starts(
    group: OpGroup, forecast: Forecast, saved_s: float, ops: Mapping[OpGroup, int], change: int
) -> Forecast:
    """As `without_starts` where the whole step's saving is known: `saved_s` for each op."""
    point = forecast.span.point
    whole, half = (max(point - part * saved_s * ops.get(group, 0), 0.0) for part in (1.0, 0.5))
    moved = forecast.span.moved(Span.around(whole, half))
    why = f"{_STARTED_OTHERWISE[change]}: what that is to the step, shared out by ops"
    span = replace(moved, low=max(moved.low, 0.0))
    return replace(forecast, span=span, basis=f"{forecast.basis}; {why}")


def above_roof(started: Forecast, before: Forecast, roof_s: float) -> Forecast:
    """Without its starts a kernel still moves its bytes: what they took must not be its roof's time."""
    one, kept = started.span, before.span
    span = Span(
        max(one.point, min(kept.point, roof_s)),
        max(one.low, min(kept.low, roof_s)),
        max(one.high, min(kept.high, roof_s)),
    )
    return replace(started, span=span)


def start_of_an_op(
    small: SmallOps,
    counted: Mapping[Phase, Mapping[OpGroup, int]],
    phase: Phase,
    change: int,
    alpha_s: float,
) -> Forecast:
    """From Python, by steps of the base that were started so.

    Where those of `phase` are (`change` 1), what their small ops take is mostly that. Replayed steps
    start theirs for nothing: of another phase an op holds its start and its work.

    Args:
        small: what the run measured of small ops.
        counted: ops of each phase of the base.
        phase: whose steps are started otherwise now.
        change: as `replays` has it.
        alpha_s: what the cheapest op takes.
    """
    if change > 0:
        costs_s = _small_op_s(small, phase, counted[phase])
        cost_s = median(costs_s) if costs_s else 0.0
        return Forecast(Span(cost_s, cost_s / 2, 2 * cost_s), "as much as small ops take", False)
    others = [(other, ops) for other, ops in counted.items() if other is not phase]
    costs_s = [cost_s for other, ops in others for cost_s in _small_op_s(small, other, ops)]
    if costs_s:
        most_s = min(costs_s)
        span = Span(_START_OF_SMALL_OP * most_s, _START_OF_SMALL_OP**2 * most_s, most_s)
        basis = "by a quarter to all of what the least small op of prefill takes"
        return Forecast(span, basis, False)
    span = Span(math.sqrt(_MOST_ALPHAS) * alpha_s, alpha_s, _MOST_ALPHAS * alpha_s)
    return Forecast(
        span, f"by 1 to {_MOST_ALPHAS} times the cheapest op: no phase tells more", False
    )


def _small_op_s(small: SmallOps, phase: Phase, ops: Mapping[OpGroup, int]) -> list[float]:
    """Of each group without a link: its time, for each op."""
    groups = [group for group in small.by_group if phase in small.by_group[group]]
    calls = {group: ops[group] for group in groups if ops.get(group) and group not in HAVE_LINKS}
    return [small.by_group[group][phase].time_s / count for group, count in calls.items()]


def forecast_host(
    splits: PhaseSplits, change: int, phase: Phase, kernels: KernelTimes, *, other_device: bool
) -> Forecast:
    """Time between the groups (CPU), or what the host takes beyond the device."""
    host_s = splits.center.host_s
    if other_device:
        return Forecast(
            Span.around(host_s, host_s / 2, 2 * host_s),
            "as long as here, or between half and twice as long",
            is_measured=False,
        )
    if not change:
        return Forecast(Span.exactly(host_s), "as it is")
    starts, how = kernels.overhead(phase, None), _STARTED_OTHERWISE[change]
    if starts is not None and kernels.knows_overheads_by_group(phase):
        return Forecast(Span.around(*_as_the_skeleton(host_s, starts)), how)
    if starts is not None:
        return Forecast(Span.exactly(host_s), "as it is: the step's saving is that of its ops")
    if change > 0:
        return Forecast(Span.around(host_s / 2, 0.0, host_s), f"{how}, half assumed", False)
    return Forecast(Span.around(2 * host_s, host_s, 4 * host_s), f"{how}, twice assumed", False)


def enqueue_time(splits: PhaseSplits, *, other_device: bool) -> Span | None:
    """Of the host for a step: the shortest, and where the device always waits for it the median.

    None without a device clock. Another device's host may be half or twice as fast.
    """
    enqueue_s, center = splits.enqueue_s, splits.center
    if enqueue_s is None:
        return None
    waits = enqueue_s > center.step_s - center.host_s
    here = Span.around(center.step_s if waits else enqueue_s, enqueue_s)
    return Span(here.point, here.low / 2, 2 * here.high) if other_device else here


def hidden_host(
    device: Span, enqueue: Span, change: int, starts: OverheadTime | None = None
) -> tuple[Span, Span]:
    """A device step, or the host's time to enqueue it where that is longer, and what of it is exposed.

    Replayed steps are enqueued at once. Where `starts` tells what steps without weights take in
    the target's mode, that is the host's time, give or take a quarter.
    """
    if change > 0:
        enqueue = Span(0.0, 0.0, enqueue.high)
    if change and starts is not None:
        known_s = starts.target_s
        enqueue = Span(known_s, (1 - _STARTS_OFF) * known_s, (1 + _STARTS_OFF) * known_s)
    step = Span(
        max(device.point, enqueue.point),
        max(device.low, enqueue.low),
        max(device.high, enqueue.high),
    )
    exposed = Span(
        step.point - device.point,
        max(enqueue.low - device.high, 0.0),
        max(enqueue.high - device.low, 0.0),
    )
    return step, exposed
