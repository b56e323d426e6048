"""Traced rounds for synthetic run records: ops back to back, each as long as the test says."""

from collections.abc import Sequence

from llmprof.schema.run import RunRecord
from llmprof.schema.trace import OpTimeline, Trace, TraceClock, TracedOp

ROUNDS = 3


def traced(
    record: RunRecord, ops: Sequence[tuple[TracedOp, float]], *, seconds_per_op: float = 0.0
) -> RunRecord:
    """`record` with the same ops, one call each, in the first step of its first rounds."""
    starts = [sum(time_s for _, time_s in ops[:index]) for index in range(len(ops))]
    timelines = tuple(
        OpTimeline(
            round=index,
            step=0,
            op=tuple(range(len(ops))),
            start_s=tuple(starts),
            duration_s=tuple(time_s for _, time_s in ops),
        )
        for index in range(ROUNDS)
    )
    trace = Trace(
        clock=TraceClock.HOST,
        ops=tuple(op for op, _ in ops),
        timelines=timelines,
        seconds_per_op=seconds_per_op,
    )
    return record.model_copy(update={"traced": record.rounds[:ROUNDS], "trace": trace})
