"""How far each part of the ledger moved when a known cost was planted."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmprof.analysis.report import build_report
from llmprof.schema.ceilings import CeilingReading
from llmprof.schema.cost import OpGroup
from llmprof.schema.ledger import Ledger, Part
from llmprof.schema.run import CountedOp, CountedStep, Round, RunRecord
from tests.planting.extras import Extra, TakingTurns

RIGHT_WITHIN = 0.10
OTHERS_WITHIN = 0.05


@dataclass(frozen=True, slots=True)
class Movement:
    """Of one part, in units of what was planted: 1 where it moved by exactly that."""

    part: Part
    median: float
    spread: float
    """Interquartile range over the cycles."""


@dataclass(frozen=True, slots=True)
class Planted:
    extra: Extra
    seconds: float
    """Median of what the extra took by its own clock."""
    step: float
    """Of the whole step, in the same units."""
    movements: tuple[Movement, ...]

    @property
    def holds(self) -> bool:
        return all(self.allows(one) for one in self.movements)

    def allows(self, one: Movement) -> bool:
        if one.part is self.extra.part:
            return abs(one.median - 1) <= RIGHT_WITHIN
        return abs(one.median) <= OTHERS_WITHIN


def movements(record: RunRecord, workload: TakingTurns) -> tuple[Planted, ...]:
    """Cycle by cycle the ledger of each arm against that of the round without extras."""
    cycles = len(record.rounds) // workload.arms
    ledgers = [_cycle(record, workload, cycle) for cycle in range(cycles)]
    return tuple(
        _planted(extra, [(one[0], one[arm]) for one in ledgers])
        for arm, extra in enumerate(workload.extras, start=1)
    )


def _planted(extra: Extra, pairs: Sequence[tuple[Ledger, Ledger]]) -> Planted:
    seconds = statistics.median(extra.taken_s)
    moved = [
        {
            part: (_parts_s(after)[part] - _parts_s(before)[part]) / seconds
            for part in _parts_s(before)
        }
        for before, after in pairs
    ]
    return Planted(
        extra=extra,
        seconds=seconds,
        step=statistics.median(
            (after.step_s.point - before.step_s.point) / seconds for before, after in pairs
        ),
        movements=tuple(
            Movement(part, *_middle([one[part] for one in moved])) for part in moved[0]
        ),
    )


def _parts_s(ledger: Ledger) -> Mapping[Part, float]:
    return {entry.part: entry.time_s.point for entry in ledger.parts}


def _middle(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, high - low


def _cycle(record: RunRecord, workload: TakingTurns, cycle: int) -> list[Ledger]:
    """All arms of a cycle by the median of its readings: their own noise is not what moves."""
    first, last = cycle * workload.arms, (cycle + 1) * workload.arms
    clean, grouped = record.rounds[first:last], record.grouped[first:last]
    reading = _median_reading([*clean, *grouped])
    return [
        _ledger(record, clean[arm], grouped[arm], reading, extra)
        for arm, extra in enumerate((None, *workload.extras))
    ]


def _ledger(
    record: RunRecord, clean: Round, grouped: Round, reading: CeilingReading, extra: Extra | None
) -> Ledger:
    beside = {"before": reading, "after": reading}
    (cost,) = record.stated_costs
    counted = record.counted
    if extra is not None and extra.cost is not None:
        cost = cost.model_copy(update={"ops": (*cost.ops, extra.cost)})
        counted = tuple(_with_ops(step, extra.ops) for step in counted)
    report = build_report(
        record.model_copy(
            update={
                "rounds": (clean.model_copy(update=beside),),
                "grouped": (grouped.model_copy(update=beside),),
                "stated_costs": (cost,),
                "counted": counted,
            }
        )
    )
    (ledger,) = report.ledgers
    return ledger


def _with_ops(step: CountedStep, ops: int) -> CountedStep:
    """As the counting pass would have seen the extra work."""
    if not ops:
        return step
    extra = CountedOp(op="aten.extra", group=OpGroup.OTHER, calls=ops, flops=None)
    return step.model_copy(update={"ops": (*step.ops, extra)})


def _median_reading(rounds: Sequence[Round]) -> CeilingReading:
    readings = [one for round_ in rounds for one in (round_.before, round_.after) if one]
    alphas = [one.alpha_s for one in readings if one.alpha_s is not None]
    return readings[0].model_copy(
        update={
            "read_bytes_per_s": statistics.median(one.read_bytes_per_s for one in readings),
            "matmul_flops_per_s": statistics.median(one.matmul_flops_per_s for one in readings),
            "alpha_s": statistics.median(alphas) if alphas else None,
        }
    )
