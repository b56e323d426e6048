"""What the median step of a phase has to do: its cost, its op counts, its fixed cost."""

from collections import Counter
from collections.abc import Sequence

from llmprof.analysis.fixed_cost import GroupFixedCost, in_graph
from llmprof.analysis.op_roof import last_level_cache_bytes
from llmprof.analysis.phases import median_shape
from llmprof.analysis.step_split import StepWork
from llmprof.costs.options import options_from
from llmprof.costs.step import step_cost
from llmprof.errors import InputError
from llmprof.schema.cost import OpGroup, Phase, StepCost, StepShape
from llmprof.schema.run import CountedStep, Round, RunRecord


def median_step_work(record: RunRecord, rounds: Sequence[Round], phase: Phase) -> StepWork | None:
    """Work of the phase's median step; None where no cost is stated and no model is known."""
    shape = median_shape(rounds, phase)
    cost = cost_of(record, shape)
    if cost is None:
        return None
    counted = counted_step(record, shape)
    return StepWork(
        cost=cost,
        fixed_cost=GroupFixedCost.of(
            record.ceilings.fixed_cost,
            None if counted is None else _ops_by_group(counted),
            in_graph=in_graph(record.settings, phase),
        ),
        cache_bytes=last_level_cache_bytes(record.environment, record.ceilings.bandwidth),
    )


def counted_step(record: RunRecord, shape: StepShape) -> CountedStep | None:
    """The counted step of the same phase whose context is closest to that of `shape`."""

    def distance(one: CountedStep) -> int:
        return abs(_context_tokens(one.shape) - _context_tokens(shape))

    same_phase = [one for one in record.counted if one.shape.phase == shape.phase]
    return min(same_phase, key=distance, default=None)


def formulas_missing(record: RunRecord, shape: StepShape) -> tuple[str, ...]:
    """Matrix operators that ran in such a step and whose FLOPs nobody can count."""
    counted = counted_step(record, shape)
    if counted is None:
        return ()
    return tuple(dict.fromkeys(op.op for op in counted.ops if op.missing_formula))


def _context_tokens(shape: StepShape) -> int:
    return shape.cached_tokens + shape.new_tokens


def cost_of(record: RunRecord, shape: StepShape) -> StepCost | None:
    """As stated by the workload, or from the model's shape and its weights as they are stored."""
    for stated in record.stated_costs:
        if stated.shape.phase == shape.phase:
            return stated
    if record.model is None or record.weights is None:
        return None
    options = options_from(
        record.settings,
        compute_dtype=record.engine.compute_dtype,
        kv_dtype=record.engine.kv_dtype,
        head_dim=record.model.head_dim,
        kv_access=record.engine.kv_access,
        packed_rows=record.engine.packed_rows,
        fp8_arithmetic=record.engine.fp8_arithmetic,
        fused_rows=record.engine.fused_rows,
        row_buckets=record.engine.row_buckets,
        experts_read=record.engine.experts_read,
        tensor_parallel=record.settings.parallel.tensor,
    )
    try:
        return step_cost(record.model, record.weights, shape, options)
    except ValueError as error:
        raise InputError(
            f"run {record.id} does not fit together: {error}", remedy="Measure it again."
        ) from error


def _ops_by_group(counted: CountedStep) -> dict[OpGroup, int]:
    calls: Counter[OpGroup] = Counter()
    for op in counted.ops:
        calls[op.group] += op.calls
    return dict(calls)
