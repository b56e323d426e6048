"""Whether a verdict survived what was changed to test it. Pure: from the ledger and the raw pairs.

A verdict is an allocation of time: so much goes with weight bytes, KV bytes, FLOPs, starting ops, the
host. Each intervention changes one of these by a known factor, so the ledger forecasts the ratio of
steps. Beside the forecast stands a rival: the ratio if that part did not limit. An intervention whose
forecast and rival are closer than the margin, or whose interval reaches both, says nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from llmprof import units
from llmprof.analysis.statistics import ratio_estimate
from llmprof.schema.ceilings import CeilingReading
from llmprof.schema.intervention import Intervention, InterventionKind, InterventionOutcome
from llmprof.schema.ledger import Ledger, Part
from llmprof.schema.measurement import Estimate

MARGIN = 0.10
"""Of the step: forecasts are made from shares that are known to about so much."""
PER_CENT = 100.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """Ratios of the changed step to the base."""

    low: float
    high: float
    rival: float


def confirm(
    ledger: Ledger | None, interventions: Sequence[Intervention]
) -> tuple[InterventionOutcome, ...]:
    """Outcomes for the ledger's phase, in the order in which they were tried."""
    if ledger is None:
        return ()
    return tuple(_outcome(ledger, one) for one in interventions if one.phase is ledger.phase)


def _outcome(ledger: Ledger, one: Intervention) -> InterventionOutcome:
    if one.skipped is not None:
        return _without_answer(one, f"not made: {one.skipped}")
    if not one.base_step_s:
        return _without_answer(one, "not made: it was interrupted")
    forecast = _FORECASTS[one.kind](ledger, one)
    observed = ratio_estimate(one.changed_step_s, one.base_step_s)
    survived = _survived(forecast, observed)
    return InterventionOutcome(
        kind=one.kind,
        change=one.change,
        predicted_low=forecast.low,
        predicted_high=forecast.high,
        rival=forecast.rival,
        observed=observed,
        survived=survived,
        words=_words(one, forecast, observed, survived),
    )


def _without_answer(one: Intervention, words: str) -> InterventionOutcome:
    return InterventionOutcome(
        kind=one.kind,
        change=one.change,
        predicted_low=None,
        predicted_high=None,
        rival=None,
        observed=None,
        survived=None,
        words=words,
    )


def _survived(forecast: Forecast, observed: Estimate) -> bool | None:
    """For it where the point is within the margin and the rival outside the interval.

    Against it where the whole interval lies outside the margin; else nothing can be told.
    """
    low, high = forecast.low - MARGIN, forecast.high + MARGIN
    if low <= forecast.rival <= high:
        return None
    if observed.low > high or observed.high < low:
        return False
    excludes_rival = not observed.low <= forecast.rival <= observed.high
    return True if low <= observed.point <= high and excludes_rival else None


def _words(one: Intervention, forecast: Forecast, observed: Estimate, survived: bool | None) -> str:
    expected = units.ratio(forecast.low)
    if forecast.high > forecast.low:
        expected += f" to {units.ratio(forecast.high)}"
    answer = {True: "survived", False: "CONTRADICTED", None: "tells nothing"}[survived]
    return (
        f"{one.change}: the step should take {expected} as long (otherwise "
        f"{units.ratio(forecast.rival)}), it took {units.ratio(observed.point)}: {answer}"
    )


def _time_with(ledger: Ledger, *names: str) -> float:
    """Share of the step that goes with these quantities, losses included."""
    seconds = sum(
        PER_CENT * one.seconds_per_percent for one in ledger.sensitivities if one.of in names
    )
    return seconds / ledger.step_s.point


def _host_sleep(ledger: Ledger, one: Intervention) -> Forecast:
    """On a CPU it adds; under a device it hides until the host is the longer side."""
    added = (one.added_host_s or 0.0) / ledger.step_s.point
    if not _has_device_clock(ledger):
        return Forecast(1 + added, 1 + added, rival=1.0)
    hidden_s = sum(term.time_s for term in ledger.hidden if term.name == "host")
    if not hidden_s:
        return Forecast(1 + added, 1 + added, rival=1.0)
    sticks_out = max(0.0, added + hidden_s / ledger.step_s.point - 1)
    return Forecast(1 + sticks_out, 1 + sticks_out, rival=1 + added)


def _smaller_device(ledger: Ledger, one: Intervention) -> Forecast:
    """Each side follows its own roof; the rival follows the other one."""
    slower_memory = _fall(one, lambda reading: reading.read_bytes_per_s)
    slower_compute = _fall(one, lambda reading: reading.matmul_flops_per_s)
    memory = _time_with(ledger, "weight bytes", "KV bytes")
    compute = _time_with(ledger, "FLOPs")
    rest = 1 - memory - compute
    ratio = memory * slower_memory + compute * slower_compute + rest
    return Forecast(ratio, ratio, rival=memory * slower_compute + compute * slower_memory + rest)


def _fall(one: Intervention, rate: Callable[[CeilingReading], float]) -> float:
    """How many times as low the ceiling became."""
    return fmean(map(rate, one.base_readings)) / fmean(map(rate, one.changed_readings))


def _longer_context(ledger: Ledger, one: Intervention) -> Forecast:
    """The KV bytes grow with the context and everything else stays; else the step would not care."""
    kv = _time_with(ledger, "KV bytes")
    ratio = 1 + kv * ((one.factor or 1.0) - 1)
    return Forecast(ratio, ratio, rival=1.0)


def _cache_resident(ledger: Ledger, one: Intervention) -> Forecast:
    """The weights come as fast as the cache reads; else the step would not care."""
    faster = 1 / _fall(one, lambda reading: reading.read_bytes_per_s)
    moved = _time_with(ledger, "weight bytes") * (one.resident_fraction or 0.0)
    ratio = 1 - moved * (1 - 1 / faster)
    return Forecast(ratio, ratio, rival=1.0)


def _replay(ledger: Ledger, one: Intervention) -> Forecast:
    """At most what is neither on the memory side nor on the compute side can go away."""
    sides = _time_with(ledger, "weight bytes", "KV bytes", "FLOPs")
    return Forecast(min(sides, 1.0), 1.0, rival=1 - sides)


def _queue_ahead(ledger: Ledger, one: Intervention) -> Forecast:
    """What is left is the device's own time: a host that limits would have been most of the step."""
    host = _time_with(ledger, "host time")
    return Forecast(1 - host, 1 - host, rival=1.0 if host > 1 / 2 else 1 / 2)


def _has_device_clock(ledger: Ledger) -> bool:
    return any(entry.part is Part.GAPS for entry in ledger.parts)


_FORECASTS: Mapping[InterventionKind, Callable[[Ledger, Intervention], Forecast]] = {
    InterventionKind.HOST_SLEEP: _host_sleep,
    InterventionKind.FEWER_THREADS: _smaller_device,
    InterventionKind.FEWER_SMS: _smaller_device,
    InterventionKind.LONGER_CONTEXT: _longer_context,
    InterventionKind.CACHE_RESIDENT: _cache_resident,
    InterventionKind.REPLAY: _replay,
    InterventionKind.QUEUE_AHEAD: _queue_ahead,
}
