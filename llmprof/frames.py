"""A saved run as pandas frames: `llmprof.load("@last").steps`."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from llmprof.analysis.report import build_report
from llmprof.schema.cost import StepShape
from llmprof.schema.ledger import GroupEntry, Ledger
from llmprof.schema.measurement import Estimate
from llmprof.schema.ops import OpEntry, PhaseOps
from llmprof.schema.report import Report
from llmprof.schema.run import RequestSample, Round, RunRecord, StepSample
from llmprof.store.runs import find_run

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, object]


class RunFrames:
    """Tidy frames of one run, one observation per row, made when they are first asked for.

    Columns are in base units, and the unit is the end of a column's name: `_s`, `_bytes`,
    `_bytes_per_s`, `_flops`, `_flops_per_s`, `_hz`, `_w`. What was not measured is missing (NaN),
    and is never zero.
    """

    def __init__(self, record: RunRecord) -> None:
        self.record = record

    @cached_property
    def report(self) -> Report:
        """The judged run: verdicts, ledgers, caveats."""
        return build_report(self.record)

    @cached_property
    def steps(self) -> "pd.DataFrame":
        """Every step of every pass, as it was recorded."""
        return _frame(
            _step_row(name, one, index, step)
            for name, rounds in _passes(self.record).items()
            for one in rounds
            for index, step in enumerate(one.steps)
        )

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """Every round of every pass: whether the machine was ours, and its sensors."""
        return _frame(
            _round_row(name, one) for name, rounds in _passes(self.record).items() for one in rounds
        )

    @cached_property
    def groups(self) -> "pd.DataFrame":
        """Op groups of each phase against their roofs."""
        return _frame(
            _group_row(ledger, entry) for ledger in self.report.ledgers for entry in ledger.groups
        )

    @cached_property
    def ops(self) -> "pd.DataFrame":
        """Ops of each phase against their roofs; empty without a tracing pass."""
        return _frame(_op_row(table, entry) for table in self.report.ops for entry in table.entries)

    @cached_property
    def ceilings(self) -> "pd.DataFrame":
        """Every live reading, in order."""
        readings = {
            reading.time_s: reading
            for rounds in _passes(self.record).values()
            for one in rounds
            for reading in (one.before, one.after)
            if reading is not None
        }
        return _frame(
            {
                "time_s": one.time_s,
                "read_bytes_per_s": one.read_bytes_per_s,
                "read_level": one.read_level,
                "read_kernel": one.read_kernel,
                "matmul_flops_per_s": one.matmul_flops_per_s,
                "matmul_dtype": one.matmul_dtype,
                "skinny_bytes_per_s": one.skinny.bytes_per_s if one.skinny else None,
            }
            for _, one in sorted(readings.items())
        )

    @cached_property
    def requests(self) -> "pd.DataFrame":
        """Requests of the clean rounds; empty for work of a fixed shape."""
        return _frame(
            _request_row(one, request) for one in self.record.rounds for request in one.requests
        )

    def __repr__(self) -> str:
        return f"<llmprof run {self.record.id}: steps, rounds, groups, ops, ceilings, requests>"


def load_frames(reference: str | Path) -> RunFrames:
    """The run that is meant by a path, `@last`, `@last~N`, an id's start or its last 8 characters.

    Raises:
        InputError: none or several match, or the file is damaged.
    """
    if isinstance(reference, Path):
        reference = str(reference.absolute())  # a name alone would be taken for an id
    return RunFrames(find_run(reference))


def _passes(record: RunRecord) -> dict[str, Sequence[Round]]:
    return {"clean": record.rounds, "grouped": record.grouped, "tracing": record.traced}


def _frame(rows: Iterable[Row]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(list(rows))


def _shape_columns(shape: StepShape) -> dict[str, object]:
    return {
        "phase": shape.phase.value,
        "sequences": shape.num_sequences,
        "new_tokens": shape.new_tokens,
        "cached_tokens": shape.cached_tokens,
    }


def _step_row(name: str, one: Round, index: int, step: StepSample) -> Row:
    return {
        "pass": name,
        "round": one.index,
        "step": index,
        **_shape_columns(step.shape),
        "start_s": step.start_s,
        "duration_s": step.duration_s,
        "device_s": step.device_s,
        "kv_used_bytes": step.kv.used_bytes if step.kv else None,
        "kv_reserved_bytes": step.kv.reserved_bytes if step.kv else None,
        "running": step.batch.running if step.batch else None,
        "waiting": step.batch.waiting if step.batch else None,
    }


def _round_row(name: str, one: Round) -> Row:
    contention, telemetry = one.contention, one.telemetry
    return {
        "pass": name,
        "round": one.index,
        "steps": len(one.steps),
        "duration_s": sum(step.duration_s for step in one.steps),
        "run_queue_fraction": contention.run_queue_fraction,
        "cpu_per_wall": contention.cpu_per_wall,
        "steal_fraction": contention.steal_fraction,
        "pressure_fraction": contention.pressure_fraction,
        "quota_used_up_fraction": contention.quota_used_up_fraction,
        "canary_hz": contention.canary_hz,
        "sm_clock_hz": telemetry.sm_clock_hz if telemetry else None,
        "power_w": telemetry.power_w if telemetry else None,
        "temperature_celsius": telemetry.temperature_celsius if telemetry else None,
        "memory_used_bytes": telemetry.memory_used_bytes if telemetry else None,
        "read_before_bytes_per_s": one.before.read_bytes_per_s if one.before else None,
        "read_after_bytes_per_s": one.after.read_bytes_per_s if one.after else None,
    }


def _estimate_columns(name: str, unit: str, estimate: Estimate) -> dict[str, object]:
    return {
        f"{name}{unit}": estimate.point,
        f"{name}_low{unit}": estimate.low,
        f"{name}_high{unit}": estimate.high,
    }


def _group_row(ledger: Ledger, entry: GroupEntry) -> Row:
    return {
        "phase": ledger.phase.value,
        "group": entry.group.value,
        "ops": entry.ops,
        **_estimate_columns("time", "_s", entry.time_s),
        **_estimate_columns("loss", "_s", entry.loss_s),
        "roof_s": entry.roof_s,
        "fixed_cost_s": entry.fixed_cost_s,
        "memory_s": entry.memory_s,
        "compute_s": entry.compute_s,
        "side": entry.side.value if entry.side else None,
        "flops": entry.flops,
        "roof_bytes": entry.roof_bytes,
        **{f"{kind}_bytes": size for kind, size in entry.traffic.model_dump().items()},
    }


def _op_row(table: PhaseOps, entry: OpEntry) -> Row:
    return {
        "phase": table.phase.value,
        "op": entry.op,
        "group": entry.group.value,
        "calls": entry.calls,
        **_estimate_columns("time", "_s", entry.time_s),
        **_estimate_columns("loss", "_s", entry.loss_s),
        "roof_s": entry.roof_s,
        "fixed_cost_s": entry.fixed_cost_s,
        "memory_s": entry.memory_s,
        "compute_s": entry.compute_s,
        "side": entry.side.value if entry.side else None,
        "flops": entry.flops,
        "roof_bytes": entry.roof_bytes,
        "achieved_flops_per_s": entry.achieved_flops_per_s,
        "achieved_bytes_per_s": entry.achieved_bytes_per_s,
    }


def _request_row(one: Round, request: RequestSample) -> Row:
    return {
        "round": one.index,
        "request": request.index,
        "arrival_s": request.arrival_s,
        "queue_s": request.queue_s,
        "prompt_tokens": request.prompt_tokens,
        "output_tokens": request.output_tokens,
        "tokens_given": len(request.token_steps),
        "preemptions": request.preemptions,
        "outcome": request.outcome,
        "reason": request.reason,
    }
