"""One row per cell of a sweep, every column in base units and named for them."""

import csv
import io

from llmprof.renderers.wording import one_line
from llmprof.schema.cost import Phase
from llmprof.schema.measurement import Estimate
from llmprof.schema.settings import GridValue
from llmprof.schema.sweep import CellMetrics, PhaseMetrics, Sweep, SweepCell

Cell = str | int | float | None


def sweep_csv(sweep: Sweep) -> bytes:
    """RFC 4180 with a header. What a cell does not have stays empty, and is never zero."""
    rows = [_row(cell) for cell in sweep.cells]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode()


def _row(cell: SweepCell) -> dict[str, Cell]:
    row: dict[str, Cell] = {key: _plain(value) for key, value in cell.changes.items()}
    row["status"] = cell.status.value
    row["reason"] = _safe(one_line(cell.reason or ""))
    row["run_ids"] = " ".join(cell.run_ids)
    row["predicted_round_s"] = cell.predicted_round_s
    if cell.metrics is not None:
        row |= _whole(cell.metrics)
        for phase in cell.metrics.phases:
            row |= _of_phase(phase.phase, phase)
    return row


def _plain(value: GridValue) -> Cell:
    if isinstance(value, bool):
        return str(value).lower()
    return _safe(one_line(value)) if isinstance(value, str) else value


def _safe(text: str) -> str:
    """A text that a spreadsheet would run as a formula is quoted (OWASP, CSV injection)."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _whole(metrics: CellMetrics) -> dict[str, Cell]:
    return {
        "num_rounds": metrics.num_rounds,
        "num_rejected_rounds": metrics.num_rejected_rounds,
        **_estimate("output_tokens_per_s", metrics.output_tokens_per_s),
        **_estimate("ttft_s", metrics.ttft_s),
        **_estimate("tpot_s", metrics.tpot_s),
        "weight_bytes": metrics.weight_bytes,
        "kv_peak_bytes": metrics.kv_peak_bytes,
        "kv_reserved_bytes": metrics.kv_reserved_bytes,
        "device_peak_bytes": metrics.device_peak_bytes,
        "power_w": metrics.power_w,
        "caveats": " ".join(metrics.caveats),
    }


def _of_phase(phase: Phase, metrics: PhaseMetrics) -> dict[str, Cell]:
    traffic = metrics.traffic
    values: dict[str, Cell] = {
        "num_sequences": metrics.num_sequences,
        "context_tokens": metrics.context_tokens,
        **_estimate("step_s", metrics.step_s),
        **_estimate("new_tokens_per_s", metrics.new_tokens_per_s),
        **_estimate("roof_fraction", metrics.roof_fraction),
        "limit": metrics.limit.value if metrics.limit else None,
        "saturation": metrics.saturation.value if metrics.saturation else None,
        "kv_bytes_share": metrics.kv_bytes_share,
        "kv_time_share": metrics.kv_time_share,
    }
    kinds = traffic.model_dump() if traffic else {}
    values |= {f"{kind}_bytes": size for kind, size in kinds.items()}
    return {f"{phase.value}.{name}": value for name, value in values.items()}


def _estimate(name: str, estimate: Estimate | None) -> dict[str, Cell]:
    return {
        name: estimate.point if estimate else None,
        f"{name}.low": estimate.low if estimate else None,
        f"{name}.high": estimate.high if estimate else None,
    }
