"""The ceilings that a step is judged by: those that were read right before and right after it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from llmprof.analysis.sm_clock import clock_ratio
from llmprof.costs.collectives import OP_OF_COLLECTIVE
from llmprof.schema.ceilings import CeilingReading, Ceilings, CollectiveCeiling
from llmprof.schema.cost import Phase, StepCost
from llmprof.schema.run import Round


@dataclass(frozen=True, slots=True)
class Rates:
    """What the links carry at best at one moment."""

    read_bytes_per_s: float
    matmul_flops_per_s: float
    matmul_dtype: str
    other_flops_per_s: Mapping[str, float]
    """Dtypes that the live reading does not cover, as cached."""
    alpha_s: float | None = None
    """Fixed cost of one op at that moment; None where only the cached one is known."""
    collectives: Mapping[str, CollectiveCeiling] = field(default_factory=dict)
    """By the name of the op that is judged by it."""

    def flops_per_s(self, dtype: str) -> float:
        """Of an unknown dtype, that of the run's: `dtypes_without_ceiling` names it."""
        if dtype == self.matmul_dtype:
            return self.matmul_flops_per_s
        return self.other_flops_per_s.get(dtype, self.matmul_flops_per_s)

    def known_flops_per_s(self, dtype: str) -> float | None:
        """As measured once per device where it was, since two dtypes must be compared alike."""
        live = self.matmul_flops_per_s if dtype == self.matmul_dtype else None
        return self.other_flops_per_s.get(dtype, live)

    def scaled(self, factor: float) -> "Rates":
        """Every link so many times as fast."""
        return replace(
            self,
            read_bytes_per_s=factor * self.read_bytes_per_s,
            matmul_flops_per_s=factor * self.matmul_flops_per_s,
            other_flops_per_s={
                dtype: factor * rate for dtype, rate in self.other_flops_per_s.items()
            },
            collectives={
                name: one.model_copy(
                    update={
                        "alpha_s": one.alpha_s / factor,
                        "bytes_per_s": one.bytes_per_s * factor,
                    }
                )
                for name, one in self.collectives.items()
            },
        )


@dataclass(frozen=True, slots=True)
class RoundRates:
    """Rates of one round: the mean of the readings beside it, and each of them alone."""

    mean: Rates
    ends: tuple[Rates, ...]

    @property
    def variants(self) -> tuple[Rates, ...]:
        return (self.mean, *self.ends)


def adjacent_readings(one: Round) -> tuple[CeilingReading, ...]:
    return tuple(reading for reading in (one.before, one.after) if reading is not None)


def distinct_readings(rounds: Sequence[Round]) -> tuple[CeilingReading, ...]:
    """All readings beside `rounds`, in order; two rounds may share the one between them."""
    found = {reading.time_s: reading for one in rounds for reading in adjacent_readings(one)}
    return tuple(found[time_s] for time_s in sorted(found))


def round_rates(one: Round, ceilings: Ceilings, phase: Phase | None = None) -> RoundRates | None:
    """None where no reading was taken beside the round.

    With a `phase` the live matmul ceiling is that at its SM clock (`sm_clock.clock_ratio`). Cached
    ceilings of other dtypes stay as they are: at which clock they were read is not known.
    """
    readings = tuple(_at_the_clock(one, reading, phase) for reading in adjacent_readings(one))
    if not readings:
        return None
    return RoundRates(
        mean=_mean_rates(readings, ceilings),
        ends=tuple(_mean_rates((reading,), ceilings) for reading in readings),
    )


def median_rates(
    rounds: Sequence[Round], ceilings: Ceilings, phase: Phase | None = None
) -> Rates | None:
    """Medians over the rounds of the means beside them; None where no reading was taken."""
    found = [round_rates(one, ceilings, phase) for one in rounds]
    means = [rates.mean for rates in found if rates is not None]
    if not means:
        return None
    return Rates(
        read_bytes_per_s=median(rates.read_bytes_per_s for rates in means),
        matmul_flops_per_s=median(rates.matmul_flops_per_s for rates in means),
        matmul_dtype=means[0].matmul_dtype,
        other_flops_per_s=means[0].other_flops_per_s,
        alpha_s=_known(median, [rates.alpha_s for rates in means]),
        collectives=means[0].collectives,
    )


def dtypes_without_ceiling(cost: StepCost, rates: Rates) -> tuple[str, ...]:
    """Dtypes computed in whose ceiling was never measured: their roof is another dtype's."""
    known = {rates.matmul_dtype, *rates.other_flops_per_s}
    return tuple(sorted({op.compute_dtype for op in cost.ops if op.flops} - known))


def median_disagreement(
    rounds: Sequence[Round], value: Callable[[CeilingReading], float]
) -> float | None:
    """Distance of the readings before and after a round over their mean; median over rounds."""
    gaps = []
    for one in rounds:
        if one.before is not None and one.after is not None:
            before, after = value(one.before), value(one.after)
            gaps.append(abs(after - before) / fmean((before, after)))
    return median(gaps) if gaps else None


def _at_the_clock(one: Round, reading: CeilingReading, phase: Phase | None) -> CeilingReading:
    ratio = clock_ratio(one, reading, phase)
    return reading.model_copy(update={"matmul_flops_per_s": ratio * reading.matmul_flops_per_s})


def _mean_rates(readings: Sequence[CeilingReading], ceilings: Ceilings) -> Rates:
    return Rates(
        read_bytes_per_s=fmean(reading.read_bytes_per_s for reading in readings),
        matmul_flops_per_s=fmean(reading.matmul_flops_per_s for reading in readings),
        matmul_dtype=readings[0].matmul_dtype,
        other_flops_per_s=best_flops_per_s(ceilings),
        alpha_s=_known(fmean, [reading.alpha_s for reading in readings]),
        collectives={OP_OF_COLLECTIVE[one.op]: one for one in ceilings.collectives},
    )


def _known(
    middle: Callable[[Sequence[float]], float], values: Sequence[float | None]
) -> float | None:
    """Of values that are all known; else None."""
    known = [value for value in values if value is not None]
    return middle(known) if known and len(known) == len(values) else None


def best_flops_per_s(ceilings: Ceilings) -> dict[str, float]:
    """Best shape of each dtype."""
    best: dict[str, float] = {}
    for ceiling in ceilings.compute:
        best[ceiling.dtype] = max(best.get(ceiling.dtype, 0.0), ceiling.flops_per_s)
    return best
