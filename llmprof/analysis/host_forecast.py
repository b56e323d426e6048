"""What starting ops costs under other settings: between the groups, inside them, under the device."""

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
_REPLAYED = "decode steps are replayed: their ops are no longer started from Python"


def replays(before: RunConfig, after: RunConfig, phase: Phase) -> int:
    """1 where the steps of `phase` are replayed from now on, -1 where no longer, 0 as before."""
    if phase is not Phase.DECODE:
        return 0
    was, will = (one.execution.mode is not ExecutionMode.EAGER for one in (before, after))
    return int(will) - int(was)


def without_starts(
    group: OpGroup, forecast: Forecast, starts: OverheadTime | None, slower: float
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
    return replace(forecast, span=span, basis=f"{forecast.basis}; {_REPLAYED}")


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
    group: OpGroup, forecast: Forecast, cost_s: float, ops: Mapping[OpGroup, int]
) -> Forecast:
    """As `without_starts` where it was not measured: `cost_s` per op, or half or twice as much."""
    one = forecast.span
    saved_s = min(cost_s * ops.get(group, 0), one.point)
    span = Span(
        one.point - saved_s, max(one.low - 2 * saved_s, 0.0), max(one.high - saved_s / 2, one.low)
    )
    return Forecast(span, f"{forecast.basis}; {_REPLAYED}, as much as small ops take", False)


def shared_starts(
    group: OpGroup, forecast: Forecast, saved_s: float, ops: Mapping[OpGroup, int]
) -> Forecast:
    """As `without_starts` where the whole step's saving is known: `saved_s` for each op."""
    point = forecast.span.point
    whole, half = (max(point - part * saved_s * ops.get(group, 0), 0.0) for part in (1.0, 0.5))
    return replace(
        forecast,
        span=forecast.span.moved(Span.around(whole, half)),
        basis=f"{forecast.basis}; {_REPLAYED}: the step's saving, shared out by ops",
    )


def start_cost_s(small: SmallOps, phase: Phase, ops: Mapping[OpGroup, int]) -> float:
    """Per op: what the groups without a link take for each, which is mostly starting it."""
    groups = [group for group in small.by_group if phase in small.by_group[group]]
    calls = {group: ops[group] for group in groups if ops.get(group) and group not in HAVE_LINKS}
    costs = [small.by_group[group][phase].time_s / count for group, count in calls.items()]
    return median(costs) if costs else 0.0


def forecast_host(
    splits: PhaseSplits, change: int, phase: Phase, kernels: KernelTimes, *, other_device: bool
) -> Forecast:
    """Time between the groups (CPU), or what the host takes beyond the device."""
    host_s = splits.center.host_s
    if other_device:
        return Forecast(
            Span(host_s, min(host_s / 2, 2 * host_s), max(host_s / 2, 2 * host_s)),
            "as long as here, or between half and twice as long",
            is_measured=False,
        )
    if not change:
        return Forecast(Span.exactly(host_s), "as it is")
    starts = kernels.overhead(phase, None)
    if starts is not None and kernels.knows_overheads_by_group(phase):
        return Forecast(Span.around(*_as_the_skeleton(host_s, starts)), _REPLAYED)
    if starts is not None:
        return Forecast(Span.exactly(host_s), "as it is: the step's saving is that of its ops")
    if change > 0:
        return Forecast(Span(host_s / 2, 0.0, host_s), f"{_REPLAYED}, half assumed", False)
    return Forecast(
        Span(2 * host_s, host_s, 4 * host_s), "ops are started from Python again", False
    )


def hidden_host(
    device: Span, enqueue_s: float, change: int, starts: OverheadTime | None = None
) -> tuple[Span, float]:
    """A device step, or the host's time to enqueue it where that is longer, and what is exposed.

    Replayed steps are enqueued at once. Where `starts` tells what steps without weights take in
    the target's mode, that is the host's time, give or take a quarter.
    """
    enqueue = Span.exactly(enqueue_s) if change <= 0 else Span(0.0, 0.0, enqueue_s)
    if change and starts is not None:
        known_s = starts.target_s
        enqueue = Span(known_s, (1 - _STARTS_OFF) * known_s, (1 + _STARTS_OFF) * known_s)
    step = Span(
        max(device.point, enqueue.point),
        max(device.low, enqueue.low),
        max(device.high, enqueue.high),
    )
    return step, step.point - device.point
