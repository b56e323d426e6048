"""Which metrics there are, and where in a run each is found. No formula of its own."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from llmprof.analysis.latency import measure_latency
from llmprof.analysis.phases import measure_phase, round_steps
from llmprof.analysis.validity import RoundSelection
from llmprof.errors import InputError
from llmprof.schema.cost import Phase
from llmprof.schema.measurement import Estimate
from llmprof.schema.metric import Better, Metric, MetricKind, Unit
from llmprof.schema.report import Report
from llmprof.schema.run import CountedStep, EngineDescription, Round, RunRecord

TTFT: Final = "prefill.ttft_s.p50"
TPOT: Final = "decode.tpot_s.p50"
PEAK_MEMORY: Final = "memory.peak_bytes"


def _timed(name: str, unit: Unit, better: Better = Better.LOWER) -> Metric:
    return Metric(name=name, unit=unit, better=better, kind=MetricKind.TIMED)


def _exact(name: str, unit: Unit) -> Metric:
    return Metric(name=name, unit=unit, better=Better.LOWER, kind=MetricKind.EXACT)


TIMED: Final = (
    _timed(TTFT, Unit.SECONDS),
    _timed(TPOT, Unit.SECONDS),
    *(_timed(f"{phase.value}.step_s.p50", Unit.SECONDS) for phase in Phase),
    *(
        _timed(f"{phase.value}.tokens_per_s.p50", Unit.TOKENS_PER_S, Better.HIGHER)
        for phase in Phase
    ),
    *(_timed(f"{phase.value}.roof_fraction.p50", Unit.FRACTION, Better.HIGHER) for phase in Phase),
)
EXACT: Final = (
    _exact("kv_cache.bytes_per_token", Unit.BYTES),
    _exact("kv_cache.reserved_bytes", Unit.BYTES),
    _exact("weights.bytes", Unit.BYTES),
    _exact("prefill.ops_per_step", Unit.COUNT),
    _exact("decode.ops_per_token", Unit.COUNT),
)
PEAKS: Final = (
    Metric(name=PEAK_MEMORY, unit=Unit.BYTES, better=Better.LOWER, kind=MetricKind.PEAK),
)
METRICS: Final[Mapping[str, Metric]] = {one.name: one for one in (*TIMED, *EXACT, *PEAKS)}


def metric_named(name: str) -> Metric:
    """Raises InputError for a name that is none, with the nearest one that is."""
    if name in METRICS:
        return METRICS[name]
    near = get_close_matches(name, METRICS, n=1, cutoff=0.5)
    remedy = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(METRICS)}"
    raise InputError(f"no metric '{name}'", remedy=remedy)


def report_estimates(report: Report) -> dict[str, Estimate]:
    """The timed metrics that a run has, exactly as its report tells them."""
    found = {TTFT: report.latency.ttft_s, TPOT: report.latency.tpot_s}
    for phase in report.phases:
        found[f"{phase.phase.value}.step_s.p50"] = phase.step_s
        found[f"{phase.phase.value}.tokens_per_s.p50"] = phase.new_tokens_per_s
    for verdict in report.verdicts:
        found[f"{verdict.phase.value}.roof_fraction.p50"] = verdict.roof_fraction
    return {name: estimate for name, estimate in found.items() if estimate is not None}


def round_values(one: Round) -> dict[str, float]:
    """Times of a single round: the metrics that paired rounds are judged by.

    Rates are their reciprocals, and the ceilings of both arms are the same machine's.
    """
    latency = measure_latency((one,))
    found = {TTFT: latency.ttft_s, TPOT: latency.tpot_s}
    values = {name: estimate.point for name, estimate in found.items() if estimate is not None}
    for phase in Phase:
        for step in round_steps((one,), phase):
            values[f"{phase.value}.step_s.p50"] = step.step_s
    return values


def round_rates(one: Round) -> dict[str, float]:
    """Tokens per second of a single round, by the formula of its report."""
    alone = RoundSelection(rounds=(one,), reasons={}, num_total=1)
    measured = [found for phase in Phase if (found := measure_phase(alone, phase)) is not None]
    return {f"{one.phase.value}.tokens_per_s.p50": one.new_tokens_per_s.point for one in measured}


def round_metric_names() -> tuple[str, ...]:
    """What `round_values` can give."""
    return (TTFT, TPOT, *(f"{phase.value}.step_s.p50" for phase in Phase))


def exact_counters(record: RunRecord) -> dict[str, float]:
    """What does not vary: bytes held, and operators as torch dispatched them."""
    values = {
        **engine_counters(record.engine),
        **op_counters(record.counted),
        PEAK_MEMORY: record.peak_memory_bytes,
    }
    return {name: value for name, value in values.items() if value is not None}


def engine_counters(engine: EngineDescription) -> dict[str, float | None]:
    return {
        "kv_cache.bytes_per_token": engine.kv_bytes_per_token,
        "kv_cache.reserved_bytes": engine.kv_bytes_reserved,
        "weights.bytes": engine.weight_bytes,
    }


def op_counters(counted: Sequence[CountedStep]) -> dict[str, float | None]:
    """Operators of the last counted step of each phase.

    A decode step of a batch counts its positions up by one. The first one, and each that opens a block
    of a paged cache, sets them anew: nine operators more, which count where that is the last step.
    """
    return {
        "prefill.ops_per_step": _of_last(counted, Phase.PREFILL, lambda step: 1),
        "decode.ops_per_token": _of_last(
            counted, Phase.DECODE, lambda step: step.shape.num_sequences
        ),
    }


def _of_last(
    counted: Sequence[CountedStep], phase: Phase, per: Callable[[CountedStep], int]
) -> float | None:
    steps = [step for step in counted if step.shape.phase is phase]
    return sum(op.calls for op in steps[-1].ops) / per(steps[-1]) if steps else None
