"""What a traced step did, op by op, and the few steps of it that the run file keeps."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from llmprof.instruments.clock import NS_PER_S
from llmprof.instruments.flop_formulas import looks_like_matrix_work
from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.run import StepSample
from llmprof.schema.trace import OpTimeline, Trace, TraceClock, TracedOp

_LONGEST_NAME: Final = 160
"""Names of CUDA templates go on for kilobytes."""
_MATRIX_KERNEL: Final = re.compile(
    r"gemm|gemv|cutlass|xmma|nvjet|wgmma|split_?k|flash|fmha|attention|matmul|conv\d|_dot_|::dot_"
    # kernels of the engine's own
    r"|^_multiply_|^_attend$|^fused_(one_row|dots)$",
    re.IGNORECASE,
)
_DECIMALS: Final = 9
"""Nanoseconds: what the clocks have."""


class OpEvent(NamedTuple):
    """One op or kernel, on the clock of its trace."""

    op: str
    group: OpGroup
    start_ns: int
    end_ns: int
    launch_ns: int | None = None
    """When the host launched it; None where the host runs it itself."""


@dataclass(frozen=True, slots=True)
class StepOps:
    """One step: the op events belong to it, and `start_ns` is its start on their clock."""

    sample: StepSample
    start_ns: int
    ops: Sequence[OpEvent]


def build_trace(
    clock: TraceClock, rounds: Sequence[Sequence[StepOps]], *, seconds_per_op: float
) -> Trace:
    """The ops of the middle step of each phase in each round, as the run file has them."""
    kinds: dict[tuple[str, OpGroup], int] = {}
    timelines = [
        _timeline(index, step, steps[step], kinds)
        for index, steps in enumerate(rounds)
        for step in _middle_steps(steps)
    ]
    return Trace(
        clock=clock,
        ops=tuple(
            TracedOp(op=op, group=group, multiplies=multiplies(op, clock)) for op, group in kinds
        ),
        timelines=tuple(timelines),
        seconds_per_op=seconds_per_op,
    )


def multiplies(op: str, clock: TraceClock) -> bool:
    """Whether it does matrix work, as far as its name tells."""
    if clock is TraceClock.HOST:
        return looks_like_matrix_work(op)
    return bool(_MATRIX_KERNEL.search(op))


def _middle_steps(steps: Sequence[StepOps]) -> Iterable[int]:
    """The step of each phase that is in the middle when they are put in the order of their work."""
    for phase in Phase:
        of_phase = [i for i, step in enumerate(steps) if step.sample.shape.phase is phase]
        if of_phase:
            of_phase.sort(key=lambda i: _work(steps[i]))
            yield of_phase[len(of_phase) // 2]


def _work(step: StepOps) -> tuple[int, int]:
    return step.sample.shape.new_tokens, step.sample.shape.cached_tokens


def _timeline(
    round_index: int, step_index: int, step: StepOps, kinds: dict[tuple[str, OpGroup], int]
) -> OpTimeline:
    events = sorted(step.ops, key=lambda event: event.start_ns)

    def after_start_s(time_ns: int) -> float:
        return round((time_ns - step.start_ns) / NS_PER_S, _DECIMALS)

    launches = [event.launch_ns for event in events if event.launch_ns is not None]
    return OpTimeline(
        round=round_index,
        step=step_index,
        op=tuple(
            kinds.setdefault((event.op[:_LONGEST_NAME], event.group), len(kinds))
            for event in events
        ),
        start_s=tuple(after_start_s(event.start_ns) for event in events),
        duration_s=tuple(
            round((event.end_ns - event.start_ns) / NS_PER_S, _DECIMALS) for event in events
        ),
        launch_s=tuple(map(after_start_s, launches)) if len(launches) == len(events) else (),
    )
