"""The clock of a GPU in a phase, against the one at which its matmul ceiling was read."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Final

from llmprof import units
from llmprof.schema.ceilings import CeilingReading
from llmprof.schema.cost import Phase
from llmprof.schema.measurement import Caveat
from llmprof.schema.run import Round

FEWEST_SAMPLES: Final = 3
"""Of a phase of a round, for a median: a sample now and then is 50 ms away from the next."""
NOTABLE_DIFFERENCE: Final = 0.05


def phase_clock_hz(one: Round, phase: Phase) -> float | None:
    """Median of the samples that fell into steps of `phase`; None where they are too few."""
    if one.telemetry is None:
        return None
    windows = [*_device_windows(one, phase)]
    begins = [begin_s for begin_s, _ in windows]
    found = []
    for sample in one.telemetry.sm_clock_samples:
        index = bisect_right(begins, sample.time_s) - 1
        if index >= 0 and sample.time_s < windows[index][1]:
            found.append(sample.sm_clock_hz)
    return median(found) if len(found) >= FEWEST_SAMPLES else None


def clock_ratio(one: Round, reading: CeilingReading, phase: Phase | None) -> float:
    """Factor from the arithmetic that `reading` found to that of a phase of a round beside it.

    Arithmetic goes with the clock (not so memory, which has its own). 1 without a phase, and where
    either clock is not known: the ceiling is then judged by as it was read.
    """
    if phase is None or not reading.sm_clock_hz:
        return 1.0
    return (phase_clock_hz(one, phase) or reading.sm_clock_hz) / reading.sm_clock_hz


def clock_caveats(rounds: Sequence[Round], phase: Phase) -> Iterable[Caveat]:
    pairs = [
        (clock_hz, reading.sm_clock_hz)
        for one in rounds
        if (clock_hz := phase_clock_hz(one, phase)) is not None
        for reading in (one.before, one.after)
        if reading is not None and reading.sm_clock_hz
    ]
    if not pairs:
        return
    ratio = median(clock_hz / read_at_hz for clock_hz, read_at_hz in pairs)
    if abs(ratio - 1) > NOTABLE_DIFFERENCE:
        clock_hz, read_at_hz = (median(values) for values in zip(*pairs, strict=True))
        yield Caveat(
            code="clock-differs",
            message=f"the multiprocessors ran at {units.si(clock_hz, 'Hz')} in this phase and at "
            f"{units.si(read_at_hz, 'Hz')} when the matmul ceiling was read, which is scaled to "
            f"{units.percent(ratio)} of what was read",
            remedy="Lock the clocks (nvidia-smi -lgc) to compare runs.",
            phase=phase,
        )


def _device_windows(one: Round, phase: Phase) -> Iterator[tuple[float, float]]:
    """When the device was at the steps of a phase, since the start of the run.

    The host runs ahead: a step starts on the device once the host gave it and the one before is done.
    """
    end_s = 0.0
    for step in one.steps:
        begin_s = max(step.start_s, end_s)
        end_s = begin_s + (step.duration_s if step.device_s is None else step.device_s)
        if step.shape.phase is phase:
            yield begin_s, end_s
