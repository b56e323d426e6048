"""Known costs put into a workload on purpose: the test of the ledger."""

import time
from collections.abc import Callable
from typing import Protocol

from llmprof.instruments.clock import NS_PER_S, Clock, HostClock
from llmprof.schema.cost import OpGroup, Phase, StepShape

_SPIN_NS = 1_000_000
"""A sleep may overshoot by the timer's slack and the scheduler's latency: the last bit is spun."""


class Observer(Protocol):
    """The hooks of `engine.probe.Probe`, which this room may not import."""

    def step_begin(self, shape: StepShape) -> None: ...
    def step_end(self) -> None: ...
    def group_begin(self, group: OpGroup) -> None: ...
    def group_end(self) -> None: ...


class PassedOn:
    """Passes everything on to another probe, its wish for group hooks included."""

    __slots__ = ("_probe", "wants_groups")

    def __init__(self, probe: Observer) -> None:
        self._probe = probe
        self.wants_groups = bool(getattr(probe, "wants_groups", True))
        """See `engine.probe.wants_groups`: what is observed must not run in another way."""

    def step_begin(self, shape: StepShape) -> None:
        self._probe.step_begin(shape)

    def step_end(self) -> None:
        self._probe.step_end()

    def group_begin(self, group: OpGroup) -> None:
        self._probe.group_begin(group)

    def group_end(self) -> None:
        self._probe.group_end()


class HostSleep(PassedOn):
    """Holds each step up for `seconds` at its start.

    The delay lies inside the step and outside every group, so a right ledger shows it as host time.
    It sleeps until a millisecond before the deadline and spins from there, or spins all the way
    (`busy`), which also keeps the core's clock up and takes the core from other threads.
    """

    __slots__ = ("_busy", "_delay_ns", "_now", "_sleep")

    def __init__(
        self,
        probe: Observer,
        seconds: float,
        *,
        busy: bool = False,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(probe)
        self._delay_ns = round(seconds * NS_PER_S)
        self._busy = busy
        self._now = (clock or HostClock()).now_ns
        self._sleep = sleep

    def step_begin(self, shape: StepShape) -> None:
        super().step_begin(shape)
        deadline_ns = self._now() + self._delay_ns
        if not self._busy and self._delay_ns > _SPIN_NS:
            self._sleep((self._delay_ns - _SPIN_NS) / NS_PER_S)
        while self._now() < deadline_ns:
            pass


class ExtraWork(PassedOn):
    """Runs `work` at the start of each step of `phase`, inside an op group that is its own.

    What it took by the host's clock is appended to `taken_s`: the amount that the ledger must find.
    """

    __slots__ = ("_group", "_now", "_phase", "_work", "taken_s")

    def __init__(
        self,
        probe: Observer,
        work: Callable[[], object],
        *,
        taken_s: list[float],
        phase: Phase = Phase.DECODE,
        group: OpGroup = OpGroup.OTHER,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(probe)
        self.taken_s = taken_s
        self._work = work
        self._phase = phase
        self._group = group
        self._now = (clock or HostClock()).now_ns

    def step_begin(self, shape: StepShape) -> None:
        super().step_begin(shape)
        if shape.phase is not self._phase:
            return
        self._probe.group_begin(self._group)
        begin_ns = self._now()
        self._work()
        self.taken_s.append((self._now() - begin_ns) / NS_PER_S)
        self._probe.group_end()


class QueueAhead(PassedOn):
    """Holds the device back before each step until the host has enqueued all of it.

    `hold_back` puts work on the device that lasts longer than the host needs. The step's mark comes
    after it, so the device's clock shows kernels back to back, without any wait for the host.
    """

    __slots__ = ("_hold_back",)

    def __init__(self, probe: Observer, hold_back: Callable[[], object]) -> None:
        super().__init__(probe)
        self._hold_back = hold_back

    def step_begin(self, shape: StepShape) -> None:
        self._hold_back()
        super().step_begin(shape)
