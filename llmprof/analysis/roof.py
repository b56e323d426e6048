"""The roof of a run: what its live readings say, with their intervals."""

from collections.abc import Callable, Sequence
from statistics import fmean, median, mode

from llmprof.analysis.rates import adjacent_readings, distinct_readings
from llmprof.analysis.statistics import bounded_estimate, median_estimate, ratio_estimate
from llmprof.schema.ceilings import CeilingReading, Ceilings
from llmprof.schema.measurement import Estimate
from llmprof.schema.report import Roof
from llmprof.schema.run import Round


def build_roof(rounds: Sequence[Round], ceilings: Ceilings) -> Roof | None:
    """Medians over the rounds of the readings beside them, at the clock that they were read at.

    As `rates.median_rates` has them without a phase.
    The kernel named is the one that won most readings. None where no reading was taken: then nothing
    can be judged.
    """
    readings = distinct_readings(rounds)
    if not readings:
        return None
    read = _over_rounds(rounds, lambda reading: reading.read_bytes_per_s)
    matmul = _over_rounds(rounds, lambda reading: reading.matmul_flops_per_s)
    skinny = [reading.skinny for reading in readings if reading.skinny is not None]
    return Roof(
        read_bytes_per_s=read,
        read_level=readings[0].read_level,
        read_kernel=mode(reading.read_kernel for reading in readings),
        matmul_flops_per_s=matmul,
        matmul_dtype=readings[0].matmul_dtype,
        ridge_flops_per_byte=matmul.point / read.point,
        skinny_bytes_per_s=median_estimate([one.bytes_per_s for one in skinny]) if skinny else None,
        skinny_rows=skinny[0].rows if skinny else None,
        skinny_kernel=skinny[0].kernel if skinny else None,
        alpha_s=_alpha_s(readings) or ceilings.fixed_cost.alpha_s,
    )


def _alpha_s(readings: Sequence[CeilingReading]) -> float | None:
    """None in files whose readings did not have it yet."""
    known = [reading.alpha_s for reading in readings if reading.alpha_s is not None]
    return median(known) if known else None


def _over_rounds(rounds: Sequence[Round], value: Callable[[CeilingReading], float]) -> Estimate:
    """Median of the means beside each round; their disagreement widens the interval."""
    beside = [[value(reading) for reading in adjacent_readings(one)] for one in rounds]
    known = [values for values in beside if values]
    return bounded_estimate(
        [fmean(values) for values in known],
        [min(values) for values in known],
        [max(values) for values in known],
    )


def skinny_fraction(rounds: Sequence[Round], rows: int | None) -> Estimate | None:
    """Live skinny matmul over live read ceiling, reading by reading; None at other rows."""
    pairs = [
        (reading.skinny.bytes_per_s, reading.read_bytes_per_s)
        for reading in distinct_readings(rounds)
        if reading.skinny is not None and reading.skinny.rows == rows
    ]
    if not pairs:
        return None
    return ratio_estimate([above for above, _ in pairs], [below for _, below in pairs])
