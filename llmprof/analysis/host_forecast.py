"""What starting ops costs under other settings: between the groups, inside them, under the device."""

from collections.abc import Mapping
from statistics import median

from llmprof.analysis.group_forecast import HAVE_LINKS, Forecast
from llmprof.analysis.kernel_times import KernelTimes
from llmprof.analysis.small_ops import SmallOps
from llmprof.analysis.spans import Span
from llmprof.analysis.splits import PhaseSplits
from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.settings import ExecutionMode, RunConfig

_REPLAYED = "decode steps are replayed: their ops are no longer started from Python"


def replays(before: RunConfig, after: RunConfig, phase: Phase) -> int:
    """1 where the steps of `phase` are replayed from now on, -1 where no longer, 0 as before."""
    if phase is not Phase.DECODE:
        return 0
    was, will = (one.execution.mode is not ExecutionMode.EAGER for one in (before, after))
    return int(will) - int(was)


def without_starts(
    group: OpGroup, forecast: Forecast, phase: Phase, kernels: KernelTimes
) -> Forecast:
    """A group whose ops are started in another way, by what that was measured to save."""
    saved_s = kernels.saved_s(phase, group)
    if not saved_s:
        return forecast
    one = forecast.span
    span = Span.around(one.point - saved_s, one.point - saved_s / 2)
    span = Span(span.point, span.low - (one.point - one.low), span.high + (one.high - one.point))
    return Forecast(span, f"{forecast.basis}; {_REPLAYED}", forecast.is_measured)


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
    if kernels.knows_overheads(phase):
        saved_s = kernels.saved_s(phase, None)
        return Forecast(Span.around(host_s - saved_s, host_s - saved_s / 2), _REPLAYED)
    if change > 0:
        return Forecast(Span(host_s / 2, 0.0, host_s), f"{_REPLAYED}, half assumed", False)
    return Forecast(
        Span(2 * host_s, host_s, 4 * host_s), "ops are started from Python again", False
    )


def hidden_host(device: Span, enqueue_s: float, change: int) -> tuple[Span, float]:
    """A device step, or the host's time to enqueue it where that is longer, and what is exposed.

    Replayed steps are enqueued at once.
    """
    enqueue = Span.exactly(enqueue_s) if change <= 0 else Span(0.0, 0.0, enqueue_s)
    step = Span(
        max(device.point, enqueue.point),
        max(device.low, enqueue.low),
        max(device.high, enqueue.high),
    )
    return step, step.point - device.point
