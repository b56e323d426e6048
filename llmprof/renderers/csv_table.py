"""One row per phase, every column in base units and named for them."""

import csv
import io
from collections.abc import Sequence

from llmprof.renderers.wording import model_name
from llmprof.schema.cost import Phase
from llmprof.schema.ledger import Part
from llmprof.schema.measurement import Estimate, PhaseMeasurement
from llmprof.schema.report import Report

Cell = str | int | float | None


def render_csv(reports: Sequence[Report]) -> bytes:
    """RFC 4180 with a header. A column that a run has nothing for stays empty, and is never zero."""
    rows = [_row(report, phase) for report in reports for phase in report.phases]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns or ["run_id"], lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode()


def _row(report: Report, phase: PhaseMeasurement) -> dict[str, Cell]:
    return {
        **_what_ran(report),
        "phase": phase.phase.value,
        "num_sequences": phase.num_sequences,
        "context_tokens": phase.context_tokens,
        "num_rounds": phase.num_rounds,
        "num_rejected_rounds": phase.num_rejected_rounds,
        "num_steps": phase.num_steps,
        **_estimate("step", "_s", phase.step_s),
        "step_spread": phase.step_spread,
        **_estimate("new_tokens", "_per_s", phase.new_tokens_per_s),
        **_verdict(report, phase.phase),
        **_cost(report, phase.phase),
        **_parts(report, phase.phase),
        **_roof(report),
    }


def _what_ran(report: Report) -> dict[str, Cell]:
    run = report.run
    work = run.settings.workload
    return {
        "run_id": run.id,
        "status": run.status,
        "model": safe_text(model_name(report)),
        "device": safe_text(run.environment.device_name),
        "threads": run.engine.threads,
        "compute_dtype": run.engine.compute_dtype,
        "weight_bytes": run.engine.weight_bytes,
        "random_weights": str(run.engine.random_weights).lower(),
        "batch": work.batch,
        "prompt_tokens": work.prompt_tokens,
        "output_tokens": work.output_tokens,
    }


def safe_text(text: str) -> str:
    """A name that a spreadsheet would run as a formula is quoted (OWASP, CSV injection)."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _estimate(name: str, unit: str, estimate: Estimate | None) -> dict[str, Cell]:
    return {
        f"{name}{unit}": estimate.point if estimate else None,
        f"{name}_low{unit}": estimate.low if estimate else None,
        f"{name}_high{unit}": estimate.high if estimate else None,
    }


def _verdict(report: Report, phase: Phase) -> dict[str, Cell]:
    verdict = next((v for v in report.verdicts if v.phase is phase), None)
    fraction = verdict.roof_fraction if verdict else None
    saturation = verdict.saturation_fraction if verdict else None
    return {
        "limit": verdict.limit.value if verdict else None,
        "saturation": verdict.saturation.value if verdict else None,
        "saturation_fraction": saturation.point if saturation else None,
        **_estimate("roof_fraction", "", fraction),
    }


def _cost(report: Report, phase: Phase) -> dict[str, Cell]:
    point = next((p for p in report.points if p.label == phase.value), None)
    return {
        "flops": point.flops if point else None,
        "bytes": point.bytes_required if point else None,
        "with_activations_bytes": point.bytes_with_activations if point else None,
        "achieved_flops_per_s": point.achieved_flops_per_s.point if point else None,
        "achieved_bytes_per_s": point.achieved_bytes_per_s.point if point else None,
        "attainable_flops_per_s": point.attainable_flops_per_s if point else None,
        "mfu": point.mfu if point else None,
        "mbu": point.mbu if point else None,
    }


def _parts(report: Report, phase: Phase) -> dict[str, Cell]:
    ledger = next((led for led in report.ledgers if led.phase is phase), None)
    times = {part.part: part.time_s.point for part in ledger.parts} if ledger else {}
    return {f"{part.value}_s": times.get(part) for part in Part}


def _roof(report: Report) -> dict[str, Cell]:
    roof = report.roof
    return {
        "read_ceiling_bytes_per_s": roof.read_bytes_per_s.point if roof else None,
        "matmul_ceiling_flops_per_s": roof.matmul_flops_per_s.point if roof else None,
        "alpha_s": roof.alpha_s if roof else None,
    }
