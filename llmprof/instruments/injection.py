"""Known costs put into a workload on purpose: the test of the ledger."""

import time
from collections.abc import Callable
from typing import Protocol

from llmprof.instruments.clock import NS_PER_S, Clock, HostClock
from llmprof.schema.cost import OpGroup, StepShape

_SPIN_NS = 1_000_000
"""A sleep may overshoot by the timer's slack and the scheduler's latency: the last bit is spun."""


class Observer(Protocol):
    """The hooks of `engine.probe.Probe`, which this room may not import."""

    def step_begin(self, shape: StepShape) -> None: ...
    def step_end(self) -> None: ...
    def group_begin(self, group: OpGroup) -> None: ...
    def group_end(self) -> None: ...


class HostSleep:
    """Passes everything on to another probe and holds each step up for `seconds` at its start.

    The delay lies inside the step and outside every group, so a right ledger shows it as host time.
    It sleeps until a millisecond before the deadline and spins from there, or spins all the way
    (`busy`), which also keeps the core's clock up and takes the core from other threads.
    """

    __slots__ = ("_busy", "_delay_ns", "_now", "_probe", "_sleep")

    def __init__(
        self,
        probe: Observer,
        seconds: float,
        *,
        busy: bool = False,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._probe = probe
        self._delay_ns = round(seconds * NS_PER_S)
        self._busy = busy
        self._now = (clock or HostClock()).now_ns
        self._sleep = sleep

    def step_begin(self, shape: StepShape) -> None:
        self._probe.step_begin(shape)
        deadline_ns = self._now() + self._delay_ns
        if not self._busy and self._delay_ns > _SPIN_NS:
            self._sleep((self._delay_ns - _SPIN_NS) / NS_PER_S)
        while self._now() < deadline_ns:
            pass

    def step_end(self) -> None:
        self._probe.step_end()

    def group_begin(self, group: OpGroup) -> None:
        self._probe.group_begin(group)

    def group_end(self) -> None:
        self._probe.group_end()
