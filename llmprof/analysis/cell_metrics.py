"""What one cell of a sweep says, out of its judged report."""

from collections.abc import Iterator
from statistics import median

from llmprof.analysis.validity import select_rounds
from llmprof.schema.cost import ByteTraffic, Phase, StepCost
from llmprof.schema.ledger import Part
from llmprof.schema.measurement import Estimate, PhaseMeasurement
from llmprof.schema.report import Report
from llmprof.schema.run import StepSample
from llmprof.schema.sweep import CellMetrics, PhaseMetrics


def cell_metrics(report: Report) -> CellMetrics:
    """The row of a table, with everything that a figure over the grid needs."""
    run = report.run
    telemetry = [one.telemetry for one in run.rounds if one.telemetry is not None]
    memory = [t.memory_used_bytes for t in telemetry if t.memory_used_bytes is not None]
    power = [t.power_w for t in telemetry if t.power_w is not None]
    used = [step.kv.used_bytes for step in _steps(report) if step.kv is not None]
    return CellMetrics(
        phases=tuple(_phase_metrics(report, phase) for phase in report.phases),
        output_tokens_per_s=_output_tokens_per_s(report),
        ttft_s=report.latency.ttft_s,
        tpot_s=report.latency.tpot_s,
        weight_bytes=run.engine.weight_bytes,
        kv_peak_bytes=max([run.engine.kv_bytes_used, *used]),
        kv_reserved_bytes=run.engine.kv_bytes_reserved,
        device_peak_bytes=max(memory, default=None),
        power_w=median(power) if power else None,
        num_rounds=len(run.rounds),
        num_rejected_rounds=max((one.num_rejected_rounds for one in report.phases), default=0),
        disturbed_by=tuple(sorted(set(select_rounds(run.rounds).reasons.values()))),
        caveats=tuple(dict.fromkeys(caveat.code for caveat in report.caveats)),
    )


def _steps(report: Report) -> Iterator[StepSample]:
    return (step for one in report.run.rounds for step in one.steps)


def _output_tokens_per_s(report: Report) -> Estimate | None:
    """Of a trace over whole rounds, prefills included; of fixed work while it decodes."""
    if report.serving is not None:
        return report.serving.output_tokens_per_s
    decode = next((one for one in report.phases if one.phase is Phase.DECODE), None)
    return decode.new_tokens_per_s if decode else None


def _phase_metrics(report: Report, phase: PhaseMeasurement) -> PhaseMetrics:
    verdict = next((one for one in report.verdicts if one.phase is phase.phase), None)
    cost = next((one for one in report.costs if one.shape.phase is phase.phase), None)
    return PhaseMetrics(
        phase=phase.phase,
        num_sequences=phase.num_sequences,
        context_tokens=phase.context_tokens,
        step_s=phase.step_s,
        new_tokens_per_s=phase.new_tokens_per_s,
        roof_fraction=verdict.roof_fraction if verdict else None,
        limit=verdict.limit if verdict else None,
        saturation=verdict.saturation if verdict else None,
        traffic=cost.traffic if cost else None,
        kv_bytes_share=_kv_bytes_share(report, phase.phase, cost),
        kv_time_share=_kv_time_share(report, phase.phase),
    )


def _kv_bytes_share(report: Report, phase: Phase, cost: StepCost | None) -> float | None:
    """Over the bytes that count toward the roof, as the points of the roofline have them."""
    point = next((one for one in report.points if one.label == phase.value), None)
    if cost is None or point is None or not point.bytes_required:
        return None
    return _kv_bytes(cost.traffic) / point.bytes_required


def _kv_bytes(traffic: ByteTraffic) -> float:
    return traffic.kv_read + traffic.kv_write


def _kv_time_share(report: Report, phase: Phase) -> float | None:
    ledger = next((one for one in report.ledgers if one.phase is phase), None)
    if ledger is None:
        return None
    return sum(part.share for part in ledger.parts if part.part is Part.MEMORY_KV)
