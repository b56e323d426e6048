"""The ops of a traced step against their roofs: the ledger of a group, op by op.

A cost belongs to ops, not to names of operators: within a group the costs with FLOPs are those of
the ops that multiply, all other costs those of the rest. Ops that share a roof stand in one row;
an op that no cost asks for (an unpacking, a copy, a mask) has only its fixed cost as roof, so all
else that it takes is loss. Rows of a group add up to the group's time, roof and loss.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from llmprof.analysis.fixed_cost import GroupFixedCost, in_graph
from llmprof.analysis.op_roof import OpRoof, last_level_cache_bytes, op_roof
from llmprof.analysis.phase_case import PhaseCase
from llmprof.analysis.phases import step_time_s
from llmprof.analysis.rates import Rates, round_rates
from llmprof.analysis.statistics import median_estimate
from llmprof.analysis.step_split import GroupSplit
from llmprof.analysis.step_work import cost_of
from llmprof.analysis.trace_times import Gaps, OpTimes, device_gaps, times_by_op
from llmprof.schema.cost import OpCost, OpGroup, StepShape
from llmprof.schema.measurement import Estimate
from llmprof.schema.ops import OpEntry, PhaseOps
from llmprof.schema.run import RunRecord
from llmprof.schema.trace import OpTimeline, Trace, TraceClock, TracedOp

_Key = tuple[str, OpGroup]


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of the table in one step."""

    calls: int
    split: GroupSplit
    flops: float


@dataclass(frozen=True, slots=True)
class _Step:
    """One traced step, judged by the ceilings read beside its round."""

    shape: StepShape
    step_s: float
    busy_s: float
    calls: int
    unmapped_s: float
    gaps: Gaps | None
    rows: dict[_Key, _Row]


def tabulate_ops(record: RunRecord, case: PhaseCase) -> PhaseOps | None:
    """None where the phase was not traced, or nothing was read to judge it by."""
    if record.trace is None:
        return None
    steps = [
        step
        for timeline in record.trace.timelines
        if (step := _judged(record, record.trace, timeline)) is not None
        and step.shape.phase is case.phase
    ]
    if not steps:
        return None
    busy_s = median_estimate([step.busy_s for step in steps])
    step_s = case.measurement.step_s.point
    num_ops = median(step.calls for step in steps)
    gaps = [step.gaps for step in steps if step.gaps is not None]
    return PhaseOps(
        phase=case.phase,
        clock=record.trace.clock,
        num_steps=len(steps),
        step_s=step_s,
        traced_step_s=median(step.step_s for step in steps),
        busy_s=busy_s,
        between_s=step_s - busy_s.point,
        host_wait_s=median(one.host_wait_s for one in gaps) if gaps else None,
        idle_s=median(one.idle_s for one in gaps) if gaps else None,
        ops_per_step=num_ops,
        ops_per_token=median(step.calls / step.shape.new_tokens for step in steps),
        mean_op_s=median(step.busy_s / step.calls for step in steps),
        unmapped_fraction=median(step.unmapped_s / step.busy_s for step in steps),
        entries=_entries(steps, claims_flops=not case.missing_formulas),
    )


def _judged(record: RunRecord, trace: Trace, timeline: OpTimeline) -> _Step | None:
    """A step without ops, readings or costs cannot be judged."""
    round_ = record.traced[timeline.round]
    sample = round_.steps[timeline.step]
    rates = round_rates(round_, record.ceilings, sample.shape.phase)
    cost = cost_of(record, sample.shape)
    times = times_by_op(trace, timeline)
    busy_s = sum(one.time_s for one in times.values())
    if rates is None or cost is None or busy_s <= 0:
        return None
    cache_bytes = last_level_cache_bytes(record.environment, record.ceilings.bandwidth)
    replayed = in_graph(record.settings, sample.shape.phase)
    fixed_cost = GroupFixedCost.of(record.ceilings.fixed_cost, None, in_graph=replayed)
    if rates.mean.alpha_s is not None:
        fixed_cost = replace(fixed_cost, alpha_s=rates.mean.alpha_s)
    return _Step(
        shape=sample.shape,
        step_s=step_time_s(sample),
        busy_s=busy_s,
        calls=sum(one.calls for one in times.values()),
        unmapped_s=sum(one.time_s for op, one in times.items() if op.group is OpGroup.OTHER),
        gaps=device_gaps(timeline) if trace.clock is TraceClock.DEVICE else None,
        rows=_rows(times, cost.ops, rates.mean, cache_bytes, fixed_cost),
    )


def _rows(
    times: dict[TracedOp, OpTimes],
    costs: Sequence[OpCost],
    rates: Rates,
    cache_bytes: int | None,
    fixed_cost: GroupFixedCost,
) -> dict[_Key, _Row]:
    rows: dict[_Key, _Row] = {}
    for ops, own in _classes(list(times), costs):
        roofs = tuple(op_roof(cost, rates, cache_bytes) for cost in own)
        for name, joined in _joined(ops, roofs):
            calls = sum(times[op].calls for op in joined)
            split = GroupSplit(
                time_s=sum(times[op].time_s for op in joined),
                fixed_cost_s=fixed_cost.group_s(ops[0].group, calls),
                roofs=roofs if len(joined) == len(ops) else (),
            )
            flops = sum(cost.flops for cost in own) if split.roofs else 0.0
            rows[name, ops[0].group] = _Row(calls, split, flops)
    return rows


def _classes(
    ops: Sequence[TracedOp], costs: Sequence[OpCost]
) -> Iterator[tuple[list[TracedOp], list[OpCost]]]:
    """Ops of a group that multiply, and those that do not, each with their costs."""
    by_class: dict[tuple[OpGroup, bool], list[TracedOp]] = defaultdict(list)
    for op in ops:
        by_class[op.group, op.multiplies].append(op)
    own: dict[tuple[OpGroup, bool], list[OpCost]] = defaultdict(list)
    for cost in costs:
        key = cost.group, cost.flops > 0
        other = cost.group, not cost.flops > 0
        own[key if key in by_class else other].append(cost)
    for key, members in by_class.items():
        yield members, own[key]


def _joined(
    ops: Sequence[TracedOp], roofs: Sequence[OpRoof]
) -> Iterator[tuple[str, Sequence[TracedOp]]]:
    """One row for all where there is a link to share, else one for each."""
    if len(ops) > 1 and not any(roof.link_s for roof in roofs):
        yield from ((op.op, (op,)) for op in ops)
        return
    yield " + ".join(sorted(op.op for op in ops)), ops


def _entries(steps: Sequence[_Step], *, claims_flops: bool) -> tuple[OpEntry, ...]:
    keys = dict.fromkeys(key for step in steps for key in step.rows)
    entries = [_entry(key, steps, claims_flops=claims_flops) for key in keys]
    return tuple(sorted(entries, key=lambda entry: -entry.loss_s.point))


def _entry(key: _Key, steps: Sequence[_Step], *, claims_flops: bool) -> OpEntry:
    """Medians over the steps; an op that a step does not have took no time in it."""
    rows = [step.rows.get(key, _ABSENT) for step in steps]
    op, group = key
    time_s = _estimate(rows, lambda row: row.split.time_s)
    flops = median(row.flops for row in rows)
    roof_bytes = median(sum(roof.roof_bytes for roof in row.split.roofs) for row in rows)
    has_link = rows[0].split.has_link
    return OpEntry(
        op=op,
        group=group,
        calls=median(row.calls for row in rows),
        time_s=time_s,
        fixed_cost_s=median(row.split.fixed_cost_s for row in rows),
        memory_s=median(row.split.memory_s for row in rows),
        compute_s=median(row.split.compute_s for row in rows),
        roof_s=median(row.split.roof_s for row in rows),
        loss_s=_estimate(rows, lambda row: row.split.loss_s),
        side=rows[0].split.side,
        flops=flops,
        roof_bytes=roof_bytes,
        achieved_flops_per_s=_rate(flops, time_s) if claims_flops else None,
        achieved_bytes_per_s=_rate(roof_bytes, time_s) if has_link else None,
    )


def _estimate(rows: Sequence[_Row], quantity: Callable[[_Row], float]) -> Estimate:
    return median_estimate([quantity(row) for row in rows])


def _rate(amount: float, time_s: Estimate) -> float | None:
    return amount / time_s.point if amount and time_s.point > 0 else None


_ABSENT = _Row(calls=0, split=GroupSplit(time_s=0.0, fixed_cost_s=0.0, roofs=()), flops=0.0)
