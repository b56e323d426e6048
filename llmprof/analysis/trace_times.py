"""Sums and gaps of a traced step's ops."""

from dataclasses import dataclass

from llmprof.schema.trace import OpTimeline, Trace, TracedOp


@dataclass(slots=True)
class OpTimes:
    """All calls of one kind of op in one step."""

    calls: int = 0
    time_s: float = 0.0


def times_by_op(trace: Trace, timeline: OpTimeline) -> dict[TracedOp, OpTimes]:
    """In the order in which they first ran, without what recording adds to each."""
    found: dict[TracedOp, OpTimes] = {}
    for index, duration_s in zip(timeline.op, timeline.duration_s, strict=True):
        times = found.setdefault(trace.ops[index], OpTimes())
        times.calls += 1
        times.time_s += duration_s - trace.seconds_per_op
    return found


@dataclass(frozen=True, slots=True)
class Gaps:
    """Of the union over streams, between the first kernel's start and the last one's end."""

    idle_s: float
    host_wait_s: float
    """Those that end with a kernel launched after the gap began: the device had nothing queued."""


def device_gaps(timeline: OpTimeline) -> Gaps:
    """Source: idle time breakdown of Holistic Trace Analysis ("host wait")."""
    idle_s, waited_s, end_s = 0.0, 0.0, None
    ordered = sorted(
        zip(timeline.start_s, timeline.duration_s, timeline.launch_s, strict=True)
        if timeline.launch_s
        else ()
    )
    for start_s, duration_s, launch_s in ordered:
        if end_s is not None and start_s > end_s:
            idle_s += start_s - end_s
            waited_s += start_s - end_s if launch_s > end_s else 0.0
        end_s = start_s + duration_s if end_s is None else max(end_s, start_s + duration_s)
    return Gaps(idle_s, waited_s)
