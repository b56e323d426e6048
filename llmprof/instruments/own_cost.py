"""What observing costs on this machine, measured with the same hooks that the passes use."""

from collections.abc import Sequence
from statistics import fmean, median

from llmprof.instruments.clock import NS_PER_S, Clock, Timer
from llmprof.instruments.tracer import GroupTracer, StepTracer
from llmprof.schema.cost import OpGroup, Phase, SequenceShape, StepShape
from llmprof.schema.run import OwnCost, StepSample

_PAIRS = 256
_REPEATS = 21
_SHAPE = StepShape(
    phase=Phase.DECODE,
    sequences=(SequenceShape(new_tokens=1, cached_tokens=0),),
    logit_rows=1,
)


def measure_own_cost(
    clock: Clock,
    device_timer: Timer | None,
    grouped: Sequence[StepSample],
    *,
    sampler_cpu_s: float = 0.0,
) -> OwnCost:
    """Cost of one pair of group hooks, and how many of them a step of the grouped pass made.

    Medians over short loops of a few milliseconds in all; run it after the rounds. With a device
    timer the share inside a group is 0: the device writes its timestamps between kernels, and what
    that takes cannot be told from a gap.
    """
    empty = [_seconds_per_pair(StepTracer(clock, device_timer, 0), clock) for _ in range(_REPEATS)]
    traced, inside = [], []
    for _ in range(_REPEATS):
        tracer = GroupTracer(clock, device_timer, 0)
        traced.append(_seconds_per_pair(tracer, clock))
        inside.append(_seconds_inside(tracer))
    return OwnCost(
        probe_calls_per_step=_calls_per_step(grouped),
        seconds_per_probe_call=max(0.0, median(traced) - median(empty)),
        seconds_in_group_per_probe_call=median(inside) if device_timer is None else 0.0,
        seconds_per_empty_call=median(empty),
        seconds_per_step=median(_seconds_per_step(clock, device_timer) for _ in range(_REPEATS)),
        sampler_cpu_s=sampler_cpu_s,
    )


def _seconds_per_pair(probe: StepTracer, clock: Clock) -> float:
    """Mean over a loop that calls the hooks as a workload does; the loop itself is in it."""
    group = OpGroup.OTHER
    probe.step_begin(_SHAPE)
    start_ns = clock.now_ns()
    for _ in range(_PAIRS):
        probe.group_begin(group)
        probe.group_end()
    end_ns = clock.now_ns()
    probe.step_end()
    return (end_ns - start_ns) / NS_PER_S / _PAIRS


def _seconds_per_step(clock: Clock, device_timer: Timer | None) -> float:
    """Mean over a loop of steps in which nothing happens."""
    tracer = StepTracer(clock, device_timer, 0)
    start_ns = clock.now_ns()
    for _ in range(_PAIRS):
        tracer.step_begin(_SHAPE)
        tracer.step_end()
    return (clock.now_ns() - start_ns) / NS_PER_S / _PAIRS


def _seconds_inside(tracer: GroupTracer) -> float:
    (sample,) = tracer.samples()
    (group,) = sample.groups
    return group.duration_s / group.calls


def _calls_per_step(grouped: Sequence[StepSample]) -> float:
    return fmean(sum(group.calls for group in step.groups) for step in grouped) if grouped else 0.0
