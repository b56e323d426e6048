"""The tracing pass on CUDA: when each kernel of a step ran, and when the host launched it.

torch.profiler records kernels through CUPTI, also those that a CUDA graph replays, and ranges that
the host marks (`record_function`). A kernel belongs to the step and the op group during which the
host launched it. Kernels that a graph replays have one launch in common, outside of every group.
"""

import json
import os
import tempfile
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from llmprof.instruments.clock import Clock, Timer
from llmprof.instruments.step_ops import OpEvent, StepOps
from llmprof.instruments.tracer import StepTracer
from llmprof.schema.cost import OpGroup, StepShape
from llmprof.schema.run import StepSample

_STEP: Final = "llmprof.step"
_GROUP: Final = "llmprof.group."
_DEVICE_WORK: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES: Final = ("cuda_runtime", "cuda_driver")
_NS_PER_US: Final = 1000


class KernelTimeline(StepTracer):
    """Marks steps and groups for torch.profiler; the probe of one traced round.

    Use it around the round: `with timeline: workload.run_round(timeline)`. Leaving it ends the
    recording, `steps()` reads it. CUPTI is told to let go of the process afterwards, since it would
    slow down every launch after the first recording.
    """

    wants_groups = True

    __slots__ = ("_events", "_group", "_profiler", "_range", "_step")

    def __init__(self, clock: Clock, device_timer: Timer | None, origin_ns: int) -> None:
        super().__init__(clock, device_timer, origin_ns)
        import torch.profiler

        self._range = torch.profiler.record_function
        os.environ.setdefault("TEARDOWN_CUPTI", "1")
        kinds = torch.profiler.ProfilerActivity
        self._profiler = torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA])
        self._step: Any = None
        self._group: Any = None
        self._events: Sequence[Mapping[str, Any]] = ()

    def __enter__(self) -> Self:
        self._profiler.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._profiler.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        if error is None:
            self._events = _exported(self._profiler)

    def step_begin(self, shape: StepShape) -> None:
        super().step_begin(shape)
        self._step = self._range(_STEP)
        self._step.__enter__()

    def step_end(self) -> None:
        self._step.__exit__(None, None, None)
        super().step_end()

    def group_begin(self, group: OpGroup) -> None:
        self._group = self._range(f"{_GROUP}{group.value}")
        self._group.__enter__()

    def group_end(self) -> None:
        self._group.__exit__(None, None, None)

    def steps(self) -> tuple[StepOps, ...]:
        """The finished steps, in order."""
        return step_kernels(self._events, self.samples())


def step_kernels(
    events: Sequence[Mapping[str, Any]], samples: Sequence[StepSample]
) -> tuple[StepOps, ...]:
    """Sort the events of a torch.profiler trace by step; times are on its clock, in ns.

    Args:
        events: `traceEvents` of the exported trace (Kineto's Chrome format, times in us).
        samples: the steps that were marked, in order.

    Returns:
        One entry per sample. A kernel whose launch was not recorded belongs to no step.
    """
    marks = _ranges(events, _STEP)
    groups = _ranges(events, _GROUP)
    launches = {
        event["args"]["correlation"]: _start_ns(event)
        for event in events
        if event.get("cat") in _LAUNCHES and "correlation" in event.get("args", {})
    }
    kernels: dict[int, list[OpEvent]] = {}
    for event in events:
        if event.get("cat") not in _DEVICE_WORK:
            continue
        launch_ns = launches.get(event.get("args", {}).get("correlation"))
        step = None if launch_ns is None else marks.at(launch_ns)
        if launch_ns is None or step is None:
            continue
        group = groups.at(launch_ns)
        kernels.setdefault(step, []).append(_kernel(event, groups.name(group), launch_ns))
    return tuple(
        StepOps(sample, marks.starts[index], kernels.get(index, []))
        for index, sample in enumerate(samples[: len(marks.starts)])
    )


def _kernel(event: Mapping[str, Any], group: str | None, launch_ns: int) -> OpEvent:
    start_ns = _start_ns(event)
    return OpEvent(
        op=str(event["name"]),
        group=OpGroup.OTHER if group is None else OpGroup(group.removeprefix(_GROUP)),
        start_ns=start_ns,
        end_ns=start_ns + _duration_ns(event),
        launch_ns=launch_ns,
    )


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Ranges of the host that do not overlap, in order."""

    starts: list[int]
    ends: list[int]
    names: list[str]

    def at(self, time_ns: int) -> int | None:
        """Index of the range that holds a moment."""
        index = bisect_right(self.starts, time_ns) - 1
        return index if index >= 0 and time_ns <= self.ends[index] else None

    def name(self, index: int | None) -> str | None:
        return None if index is None else self.names[index]


def _ranges(events: Sequence[Mapping[str, Any]], prefix: str) -> _Ranges:
    found = sorted(
        (_start_ns(event), _start_ns(event) + _duration_ns(event), str(event["name"]))
        for event in events
        if event.get("cat") == "user_annotation" and str(event.get("name")).startswith(prefix)
    )
    starts, ends, names = ([one[n] for one in found] for n in range(3))
    return _Ranges(starts, ends, names)  # type: ignore[arg-type]


def _start_ns(event: Mapping[str, Any]) -> int:
    return round(float(event["ts"]) * _NS_PER_US)


def _duration_ns(event: Mapping[str, Any]) -> int:
    return round(float(event.get("dur", 0.0)) * _NS_PER_US)


def _exported(profiler: Any) -> Sequence[Mapping[str, Any]]:
    """The recording in Kineto's own format, which has been the same for years."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events: Sequence[Mapping[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events
