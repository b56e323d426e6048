"""When each op of a few steps ran: the tracing pass, in columns to keep the file small."""

from enum import StrEnum
from typing import Self

from pydantic import NonNegativeFloat, NonNegativeInt, model_validator

from llmprof.schema.cost import OpGroup
from llmprof.schema.record import Record


class TraceClock(StrEnum):
    """Whose clock the times of a trace are from."""

    HOST = "host"
    """Ops as the CPU ran them, from the call to the return."""
    DEVICE = "device"
    """Kernels as the GPU ran them, recorded by CUPTI through torch.profiler."""


class TracedOp(Record):
    """One kind of op or kernel in one group."""

    op: str
    """`llmprof.matvec`, `aten.embedding`, or the name of a CUDA kernel."""
    group: OpGroup
    """`other` for what ran outside of every group, or could not be traced back to one."""
    multiplies: bool
    """It does matrix work: the costs with FLOPs in its group are its own."""


class OpTimeline(Record):
    """The ops of one step in the order in which they started; the columns are of one length."""

    round: NonNegativeInt
    """Index in the run's traced rounds."""
    step: NonNegativeInt
    """Index in that round's steps."""
    op: tuple[NonNegativeInt, ...]
    """Index in `Trace.ops`."""
    start_s: tuple[float, ...]
    """After the start of the step."""
    duration_s: tuple[NonNegativeFloat, ...]
    """As recorded: `Trace.seconds_per_op` is still in it."""
    launch_s: tuple[float, ...] = ()
    """When the host launched it, after the start of the step; empty where the host runs it itself."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        lengths = {len(self.op), len(self.start_s), len(self.duration_s)}
        lengths |= {len(self.launch_s)} if self.launch_s else set()
        if len(lengths) > 1:
            raise ValueError("the columns of a timeline differ in length")
        return self


class Trace(Record):
    """The tracing pass. Its rounds are slower than clean ones and time nothing but ops."""

    clock: TraceClock
    ops: tuple[TracedOp, ...]
    timelines: tuple[OpTimeline, ...]
    """Of the middle step of each phase, in each round."""
    seconds_per_op: NonNegativeFloat
    """What recording adds to the duration of an op: to be subtracted."""
