"""The two observers of a workload: one for the clean pass, one for the time of each op group.

Inside a step they read clocks and append to lists, nothing else; records are built after the round.
"""

from llmprof.instruments.clock import NS_PER_S, Clock, HostTimer, Timer
from llmprof.schema.cost import OpGroup, StepShape
from llmprof.schema.run import GroupTime, StepSample

_Step = tuple[StepShape, int, int, int, int]
"""Shape, host start and end in ns, the timer's marks at start and end."""


class StepTracer:
    """Probe of the clean pass: the boundaries of each step, and nothing inside it.

    One tracer observes one round. `device_timer` marks the same boundaries on the device's clock;
    it is reset here, so no earlier tracer that shares it may be read afterwards. A step that was
    interrupted leaves no sample.
    """

    wants_groups = False
    """See `engine.probe.wants_groups`."""

    __slots__ = ("_add_step", "_device_timer", "_now", "_origin_ns", "_shape", "_start", "_steps")

    def __init__(self, clock: Clock, device_timer: Timer | None, origin_ns: int) -> None:
        self._now = clock.now_ns
        self._device_timer = device_timer
        self._origin_ns = origin_ns
        self._steps: list[_Step] = []
        self._add_step = self._steps.append
        self._shape: StepShape
        self._start: tuple[int, int] = (0, 0)
        if device_timer is not None:
            device_timer.reset()

    def step_begin(self, shape: StepShape) -> None:
        self._shape = shape
        start_ns = self._now()
        self._start = (start_ns, 0 if self._device_timer is None else self._device_timer.mark())

    def step_end(self) -> None:
        mark = 0 if self._device_timer is None else self._device_timer.mark()
        end_ns = self._now()
        start_ns, start_mark = self._start
        self._add_step((self._shape, start_ns, end_ns, start_mark, mark))

    def group_begin(self, group: OpGroup) -> None:
        pass

    def group_end(self) -> None:
        pass

    def samples(self) -> tuple[StepSample, ...]:
        """One record per finished step, in order. Waits for the device; call it after the round."""
        if self._device_timer is not None:
            self._device_timer.synchronize()
        return tuple(self._sample(*step) for step in self._steps)

    def _sample(
        self, shape: StepShape, start_ns: int, end_ns: int, start_mark: int, end_mark: int
    ) -> StepSample:
        timer = self._device_timer
        return StepSample(
            shape=shape,
            start_s=(start_ns - self._origin_ns) / NS_PER_S,
            duration_s=(end_ns - start_ns) / NS_PER_S,
            device_s=None if timer is None else timer.elapsed_s(start_mark, end_mark),
        )


class GroupTracer(StepTracer):
    """Probe of the grouped pass: also the time and the calls of each op group in each step.

    On a CPU a group's time is the host's. With a device timer it is the device's time between two
    marks around the group, gaps included: where the device waits for the host, that wait is in it.
    The tracer subtracts nothing: `own_cost` measures what its hooks add.
    """

    wants_groups = True

    __slots__ = (
        "_add_group",
        "_add_mark",
        "_bounds",
        "_first",
        "_groups",
        "_mark",
        "_marks",
        "_timer",
    )

    def __init__(self, clock: Clock, device_timer: Timer | None, origin_ns: int) -> None:
        super().__init__(clock, device_timer, origin_ns)
        self._timer: Timer = HostTimer(clock) if device_timer is None else device_timer
        self._mark = self._timer.mark
        self._groups: list[OpGroup] = []
        self._marks: list[int] = []
        self._add_group = self._groups.append
        self._add_mark = self._marks.append
        self._first = 0
        self._bounds: list[tuple[int, int]] = []

    def step_begin(self, shape: StepShape) -> None:
        self._first = len(self._groups)
        super().step_begin(shape)

    def step_end(self) -> None:
        super().step_end()
        self._bounds.append((self._first, len(self._groups)))

    def group_begin(self, group: OpGroup) -> None:
        # The clock is read last here and first in `group_end`: the least of our own cost inside.
        self._add_group(group)
        self._add_mark(self._mark())

    def group_end(self) -> None:
        self._add_mark(self._mark())

    def samples(self) -> tuple[StepSample, ...]:
        """As `StepTracer.samples`, with the groups of each step in the order first entered."""
        steps = super().samples()
        return tuple(
            step.model_copy(update={"groups": self._group_times(first, last)})
            for step, (first, last) in zip(steps, self._bounds, strict=True)
        )

    def _group_times(self, first: int, last: int) -> tuple[GroupTime, ...]:
        total_s: dict[OpGroup, float] = {}
        calls: dict[OpGroup, int] = {}
        for call in range(first, last):
            group = self._groups[call]
            elapsed_s = self._timer.elapsed_s(self._marks[2 * call], self._marks[2 * call + 1])
            total_s[group] = total_s.get(group, 0.0) + elapsed_s
            calls[group] = calls.get(group, 0) + 1
        return tuple(
            GroupTime(group=group, duration_s=total_s[group], calls=calls[group])
            for group in total_s
        )
