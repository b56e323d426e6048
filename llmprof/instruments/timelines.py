"""The instrument of the tracing pass, by device."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from llmprof.instruments.clock import Clock, Timer
from llmprof.instruments.injection import Observer
from llmprof.instruments.kernel_timeline import KernelTimeline
from llmprof.instruments.op_timeline import OpTimeline, seconds_per_op
from llmprof.instruments.step_ops import StepOps, build_trace
from llmprof.schema.run import StepSample
from llmprof.schema.trace import Trace, TraceClock

TRACED_ROUNDS = 3


class Timeline(Observer, AbstractContextManager[object], Protocol):
    """Observes one traced round: a probe, and a context around the round."""

    def samples(self) -> tuple[StepSample, ...]: ...
    def steps(self) -> tuple[StepOps, ...]: ...


class TracingPass:
    """Makes the timelines of a device, and a trace of what they saw."""

    def __init__(self, clock: Clock, device_timer: Timer | None, origin_ns: int) -> None:
        """`device_timer`: None where the host does the work itself, as in `clock.device_timer`."""
        self._clock = clock
        self._device_timer = device_timer
        self._origin_ns = origin_ns

    def timeline(self) -> Timeline:
        """For one round."""
        if self._device_timer is None:
            return OpTimeline(self._clock, self._origin_ns)
        return KernelTimeline(self._clock, self._device_timer, self._origin_ns)

    def trace(self, rounds: Sequence[Sequence[StepOps]]) -> Trace:
        """Of the traced rounds; on a device nothing is added to a kernel's own time."""
        on_host = self._device_timer is None
        return build_trace(
            TraceClock.HOST if on_host else TraceClock.DEVICE,
            rounds,
            seconds_per_op=seconds_per_op(self._clock) if on_host else 0.0,
        )
