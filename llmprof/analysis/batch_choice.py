"""Which batch to choose: where throughput stops paying for latency, and what limits of latency allow.

The knee is the batch with the largest power, output tokens per second over time per output token:
while a step costs the same whatever the batch, power grows with it; where a step grows as fast as
the batch, power falls. L. Kleinrock, "Power and deterministic rules of thumb for probabilistic
problems in computer communications", ICC 1979.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from llmprof.schema.measurement import Estimate
from llmprof.schema.settings import GridValue, SweepSettings
from llmprof.schema.sweep import BatchChoice, CellMetrics, CellStatus, SweepAxis, SweepCell

BATCH_KEYS: Final = ("workload.batch", "batching.max_sequences")
_FEWEST: Final = 2
"""Batches that make a choice."""


def batch_choices(
    axes: Sequence[SweepAxis], cells: Iterable[SweepCell], limits: SweepSettings
) -> tuple[BatchChoice, ...]:
    """One choice for each combination of the other axes; none without an axis of batches.

    A cell whose every round was disturbed chooses nothing.
    """
    key = next((axis.key for axis in axes if axis.key in BATCH_KEYS), None)
    if key is None:
        return ()
    measured = [
        cell
        for cell in cells
        if cell.status is CellStatus.MEASURED and not (cell.metrics and cell.metrics.disturbed)
    ]
    lines: dict[tuple[tuple[str, GridValue], ...], list[SweepCell]] = {}
    for cell in measured:
        others = tuple((name, value) for name, value in cell.changes.items() if name != key)
        lines.setdefault(others, []).append(cell)
    choices = (_choice(key, dict(others), line, limits) for others, line in lines.items())
    return tuple(choice for choice in choices if choice is not None)


def _choice(
    key: str, others: dict[str, GridValue], line: Sequence[SweepCell], limits: SweepSettings
) -> BatchChoice | None:
    """None where fewer than two batches have both figures."""
    ordered = sorted(line, key=lambda cell: _number(cell.changes[key]))
    powers = [
        (power, cell.changes[key])
        for cell in ordered
        if cell.metrics is not None and (power := _power(cell.metrics)) is not None
    ]
    if len(powers) < _FEWEST:
        return None
    knee = max(powers, key=lambda pair: pair[0])[1]
    within = [
        cell.changes[key]
        for cell in ordered
        if cell.metrics is not None and _is_within(cell.metrics, limits)
    ]
    limited = limits.ttft_max_s is not None or limits.tpot_max_s is not None
    return BatchChoice(
        key=key,
        others=others,
        knee=knee,
        knee_at_edge=knee == powers[-1][1],
        largest_within=within[-1] if limited and within else None,
    )


def _number(value: GridValue) -> float:
    assert isinstance(value, int), "a batch is a whole number by the schema"
    return value


def _power(metrics: CellMetrics) -> float | None:
    """Tokens per second squared; by the medians."""
    rate, tpot = metrics.output_tokens_per_s, metrics.tpot_s
    return None if rate is None or tpot is None else rate.point / tpot.point


def _is_within(metrics: CellMetrics, limits: SweepSettings) -> bool:
    pairs = ((metrics.ttft_s, limits.ttft_max_s), (metrics.tpot_s, limits.tpot_max_s))
    return all(_keeps(estimate, limit) for estimate, limit in pairs)


def _keeps(estimate: Estimate | None, limit: float | None) -> bool:
    """With its whole interval; what was not measured keeps no limit."""
    return limit is None or (estimate is not None and estimate.high <= limit)
