"""The tracing pass on a CPU: when each op of a step ran, those of the engine's own included."""

import statistics
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from llmprof.instruments.clock import NS_PER_S, Clock
from llmprof.instruments.dispatched_op import (
    COMPOSITE,
    Operator,
    launches_kernel,
    operator_of,
    runs_as_parts,
)
from llmprof.instruments.step_ops import OpEvent, StepOps
from llmprof.schema.cost import OpGroup, Phase, SequenceShape, StepShape
from llmprof.schema.run import StepSample

_CALLS = 256
_REPEATS = 9


class OpTimeline(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Times every op of each step; also the probe that learns step and group.

    Use it around a round, and let the engine tell it about its own kernels:
    `with observed_calls(timeline), timeline: workload.run_round(timeline)`. What torch dispatches
    is timed where torch calls it; inside a kernel of the engine's own nothing of torch is watched,
    so that its time is that of the unwatched kernel. Between ops each one takes a detour through
    Python: durations count here, gaps and step times do not.
    """

    wants_groups = True
    wants_ops = True
    """See `engine.probe`."""
    supports_higher_order_operators = True

    def __init__(self, clock: Clock, origin_ns: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._now = clock.now_ns
        self._origin_ns = origin_ns
        self._group = OpGroup.OTHER
        self._shape: StepShape
        self._start_ns = 0
        self._own_op = ""
        self._own_start_ns = 0
        self._depth = 0
        self._unwatched: Any = None
        self._ops: list[OpEvent] = []
        self._in_step = False
        self._steps: list[StepOps] = []

    def steps(self) -> tuple[StepOps, ...]:
        """The finished steps, in order."""
        return tuple(self._steps)

    def samples(self) -> tuple[StepSample, ...]:
        """The same without their ops."""
        return tuple(step.sample for step in self._steps)

    def step_begin(self, shape: StepShape) -> None:
        self._shape, self._group, self._ops = shape, OpGroup.OTHER, []
        self._in_step = True
        self._start_ns = self._now()

    def step_end(self) -> None:
        end_ns = self._now()
        self._in_step = False
        sample = StepSample(
            shape=self._shape,
            start_s=(self._start_ns - self._origin_ns) / NS_PER_S,
            duration_s=(end_ns - self._start_ns) / NS_PER_S,
        )
        self._steps.append(StepOps(sample, self._start_ns, self._ops))

    def group_begin(self, group: OpGroup) -> None:
        self._group = group

    def group_end(self) -> None:
        self._group = OpGroup.OTHER

    def op_begin(self, name: str) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        self._own_op = name
        self._unwatched = torch._C._DisableTorchDispatch()
        self._own_start_ns = self._now()

    def op_end(self) -> None:
        end_ns = self._now()
        self._depth -= 1
        if self._depth:
            return
        self._unwatched = None  # watched again as soon as the guard is gone
        if self._in_step:
            event = OpEvent(self._own_op, self._group, self._own_start_ns, end_ns)
            self._ops.append(event)

    def __torch_dispatch__(
        self,
        func: Operator,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run one operator and time it; a composite one is taken apart and its parts timed."""
        kwargs = kwargs or {}
        if not self._in_step:
            return func(*args, **kwargs)
        if runs_as_parts(func, args):
            with self:
                return func._op_dk(COMPOSITE, *args, **kwargs)
        start_ns = self._now()
        out = func(*args, **kwargs)
        end_ns = self._now()
        if launches_kernel(func):
            name = str(operator_of(func))
            self._ops.append(OpEvent(name, self._group, start_ns, end_ns))
        return out


def seconds_per_op(clock: Clock) -> float:
    """Duration that a timeline records for an op that does nothing: what an op's time has too much."""
    return statistics.median(_empty_op_s(clock) for _ in range(_REPEATS))


def _empty_op_s(clock: Clock) -> float:
    timeline = OpTimeline(clock, 0)
    timeline.step_begin(_SHAPE)
    for _ in range(_CALLS):
        timeline.op_begin("llmprof.nothing")
        timeline.op_end()
    timeline.step_end()
    (step,) = timeline.steps()
    return statistics.median(op.end_ns - op.start_ns for op in step.ops) / NS_PER_S


_SHAPE = StepShape(
    phase=Phase.DECODE,
    sequences=(SequenceShape(new_tokens=1, cached_tokens=0),),
    logit_rows=1,
)
