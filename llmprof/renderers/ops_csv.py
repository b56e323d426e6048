"""One row per op of a phase, every column in base units and named for them."""

import csv
import io
from collections.abc import Sequence

from llmprof.renderers.csv_table import Cell, safe_text
from llmprof.schema.ops import OpEntry, PhaseOps
from llmprof.schema.report import Report


def render_ops_csv(reports: Sequence[Report]) -> bytes:
    """RFC 4180 with a header. What is not known stays empty, and is never zero."""
    rows = [
        _row(report, table, entry)
        for report in reports
        for table in report.ops
        for entry in table.entries
    ]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]) if rows else ["run_id"], lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode()


def _row(report: Report, table: PhaseOps, entry: OpEntry) -> dict[str, Cell]:
    return {
        "run_id": report.run.id,
        "phase": table.phase.value,
        "op": safe_text(entry.op),
        "group": entry.group.value,
        "calls": entry.calls,
        "time_s": entry.time_s.point,
        "time_low_s": entry.time_s.low,
        "time_high_s": entry.time_s.high,
        "fixed_cost_s": entry.fixed_cost_s,
        "memory_s": entry.memory_s,
        "compute_s": entry.compute_s,
        "roof_s": entry.roof_s,
        "loss_s": entry.loss_s.point,
        "loss_low_s": entry.loss_s.low,
        "loss_high_s": entry.loss_s.high,
        "side": entry.side.value if entry.side else None,
        "flops": entry.flops,
        "bytes": entry.roof_bytes,
        "achieved_flops_per_s": entry.achieved_flops_per_s,
        "achieved_bytes_per_s": entry.achieved_bytes_per_s,
        "clean_step_s": table.step_s,
    }
