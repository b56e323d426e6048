"""A whole run on a clock that only planted work moves: every figure follows from what was planted."""

from collections.abc import Callable, Sequence

from llmprof.engine.probe import Probe
from llmprof.engine.workload import Workload
from llmprof.instruments.tracer import GroupTracer, StepTracer
from llmprof.schema.cost import OpCost
from llmprof.schema.run import CountedOp, CountedStep, OwnCost, Round, RunRecord
from tests.fakes import FakeClock
from tests.records import QUIET, a_reading, a_run_record
from tests.zoo.pieces import Piece

NO_COST = OwnCost(probe_calls_per_step=0.0, seconds_per_probe_call=0.0)


def fake_piece(clock: FakeClock, seconds: float, cost: OpCost | None = None) -> Piece:
    """Takes exactly so long."""
    name = "sleep" if cost is None else cost.name
    return Piece(name, lambda: clock.advance(round(seconds * 1e9)), cost)


def fake_record(
    workload: Workload,
    clock: FakeClock,
    *,
    inject: Callable[[Probe], Probe] = lambda probe: probe,
    tiny_ops: Sequence[OpCost] = (),
    rounds: int = 6,
) -> RunRecord:
    """Clean and grouped rounds in turn, as the profiler runs them, at the ceilings of `tests.records`.

    `tiny_ops` are the costs whose calls the counting pass saw as operators.
    """
    clean: list[Round] = []
    grouped: list[Round] = []
    for index in range(rounds):
        for passed, kind in ((clean, StepTracer), (grouped, GroupTracer)):
            tracer = kind(clock, None, 0)
            workload.run_round(inject(tracer))
            passed.append(_round(index, tracer))
    (cost,) = workload.stated_costs
    counted = CountedStep(
        shape=cost.shape,
        ops=tuple(
            CountedOp(op="aten.add", group=op.group, calls=op.calls, flops=None) for op in tiny_ops
        ),
    )
    return a_run_record(alpha_spread=0.0).model_copy(
        update={
            "model": None,
            "weights": None,
            "stated_costs": workload.stated_costs,
            "engine": workload.describe(),
            "rounds": tuple(clean),
            "grouped": tuple(grouped),
            "counted": (counted,),
            "own_cost": NO_COST,
            "phases": workload.phases,
        }
    )


def _round(index: int, tracer: StepTracer) -> Round:
    return Round(
        index=index,
        before=a_reading(2.0 * index),
        after=a_reading(2.0 * index + 1),
        steps=tracer.samples(),
        contention=QUIET,
    )
