"""Sweeps with chosen numbers: what became of each cell is set by the test."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from typing import Any

from llmprof.analysis.batch_choice import batch_choices
from llmprof.schema.ceilings import BandwidthCeiling, Ceilings, ComputeCeiling, MemoryOp
from llmprof.schema.cost import ByteTraffic, Phase
from llmprof.schema.measurement import Estimate
from llmprof.schema.run import Tool
from llmprof.schema.settings import GridValue, RunConfig, SweepSettings
from llmprof.schema.sweep import (
    CellMetrics,
    CellStatus,
    PhaseMetrics,
    Sweep,
    SweepAxis,
    SweepCell,
)
from llmprof.schema.verdict import Limit, Saturation
from tests.records import a_run_record

CREATED = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def measured_ceilings() -> Ceilings:
    """10 GB/s and 100 GFLOP/s: the ridge is at 10 FLOP/byte."""
    read = BandwidthCeiling(
        op=MemoryOp.READ,
        level="DRAM",
        buffer_bytes=2**30,
        bytes_per_s=1e10,
        median_bytes_per_s=1e10,
        spread=0.01,
        kernel="k",
    )
    matmul = ComputeCeiling(
        dtype="fp32",
        m=1024,
        n=1024,
        k=1024,
        flops_per_s=1e11,
        median_flops_per_s=1e11,
        spread=0.01,
        kernel="k",
    )
    known = {"bandwidth": (read,), "compute": (matmul,)}
    return a_run_record().ceilings.model_copy(update=known)


def about(point: float, spread: float = 0.05) -> Estimate:
    low, high = point * (1 - spread), point * (1 + spread)
    return Estimate(point=point, low=low, high=high, confidence=0.97, num_samples=6)


def some_metrics(
    *, batch: int = 1, step_s: float = 0.02, ttft_s: float = 0.1, context: int = 512
) -> CellMetrics:
    """Decode steps of `batch` sequences; everything else follows from them."""
    kv_bytes = 23_040.0 * batch * context
    decode = PhaseMetrics(
        phase=Phase.DECODE,
        num_sequences=batch,
        context_tokens=context,
        step_s=about(step_s),
        new_tokens_per_s=about(batch / step_s),
        roof_fraction=about(0.6),
        limit=Limit.MEMORY,
        saturation=Saturation.SATURATED,
        traffic=ByteTraffic(weights=2.69e8, kv_read=kv_bytes, kv_write=23_040.0 * batch),
        kv_bytes_share=kv_bytes / (kv_bytes + 2.69e8),
        kv_time_share=0.02 * batch,
    )
    return CellMetrics(
        phases=(decode,),
        output_tokens_per_s=about(batch / step_s),
        ttft_s=about(ttft_s),
        tpot_s=about(step_s),
        weight_bytes=269_000_000,
        kv_peak_bytes=int(kv_bytes),
        kv_reserved_bytes=int(kv_bytes),
        device_peak_bytes=None,
        power_w=None,
        num_rounds=6,
        num_rejected_rounds=0,
        caveats=("no-counters",),
    )


def a_sweep(
    grid: Mapping[str, Sequence[GridValue]],
    outcomes: Sequence[CellMetrics | tuple[CellStatus, str]],
    **limits: Any,
) -> Sweep:
    """Cells in the order of the grid, each measured or with a status and its reason."""
    axes = tuple(SweepAxis(key=key, values=tuple(values)) for key, values in grid.items())
    settings = SweepSettings(grid={axis.key: axis.values for axis in axes}, **limits)
    places = product(*(axis.values for axis in axes))
    cells = tuple(
        _cell(index, dict(zip(grid, values, strict=True)), outcome)
        for index, (values, outcome) in enumerate(zip(places, outcomes, strict=True))
    )
    return Sweep(
        id="0123456789ab",
        created=CREATED,
        updated=CREATED,
        status="complete",
        tool=Tool(version="1.0", argv=("llmprof", "sweep", "c.yaml")),
        base=RunConfig(model="smollm2", sweep=settings),
        model_name="smollm2",
        device="cpu",
        device_name="A CPU",
        fingerprint="f",
        axes=axes,
        cells=cells,
        choices=batch_choices(axes, cells, settings),
    )


def _cell(
    index: int, changes: dict[str, GridValue], outcome: CellMetrics | tuple[CellStatus, str]
) -> SweepCell:
    if isinstance(outcome, CellMetrics):
        return SweepCell(
            index=index,
            changes=changes,
            status=CellStatus.MEASURED,
            run_ids=(f"run-{index}",),
            metrics=outcome,
        )
    status, reason = outcome
    return SweepCell(index=index, changes=changes, status=status, reason=reason)
