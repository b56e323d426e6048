"""What was read in each round, as series over the run: for the figure and for its table."""

import statistics
from typing import NamedTuple

from llmprof.schema.cost import Phase
from llmprof.schema.run import Round, RunRecord


class Series(NamedTuple):
    """A quantity over the run: seconds since its start, and the values in base units."""

    name: str
    times_s: tuple[float, ...]
    values: tuple[float, ...]


def ceiling_series(run: RunRecord) -> tuple[Series, ...]:
    """Live readings in the order in which they were taken, each once."""
    readings = {
        reading.time_s: reading
        for round_ in run.rounds
        for reading in (round_.before, round_.after)
        if reading
    }
    times = tuple(sorted(readings))
    series = [
        Series("read", times, tuple(readings[time].read_bytes_per_s for time in times)),
        Series("matmul", times, tuple(readings[time].matmul_flops_per_s for time in times)),
    ]
    skinny = [(time, r.skinny.bytes_per_s) for time in times if (r := readings[time]).skinny]
    if skinny:
        series.append(Series("skinny matmul", *zip(*skinny, strict=True)))
    return tuple(series) if times else ()


def step_series(run: RunRecord) -> tuple[Series, ...]:
    """Median step of each round, by phase."""
    found = []
    for phase in run.phases:
        medians = [
            (round_.steps[0].start_s, median_s)
            for round_ in run.rounds
            if (median_s := round_median_s(round_, phase)) is not None
        ]
        if medians:
            found.append(Series(phase.value, *zip(*medians, strict=True)))
    return tuple(found)


def round_median_s(round_: Round, phase: Phase) -> float | None:
    """Median step of `phase` in a round, by the slower of its clocks; None without such a step."""
    steps = [
        max(step.duration_s, step.device_s or 0.0)
        for step in round_.steps
        if step.shape.phase is phase
    ]
    return statistics.median(steps) if steps else None
