"""The quantities of a cell: what each is called, where it stands in the metrics, how it is printed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from llmprof import units
from llmprof.renderers.estimates import Formatter, interval
from llmprof.renderers.wording import LIMIT_NAMES, SATURATION_NAMES
from llmprof.schema.cost import Phase
from llmprof.schema.measurement import Estimate
from llmprof.schema.sweep import CellMetrics, PhaseMetrics, Sweep, SweepCell
from llmprof.schema.verdict import Saturation

Value = Estimate | float | None


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number of a cell, with its interval where it has one."""

    name: str
    value: Callable[[CellMetrics], Value]
    text: Formatter

    def of(self, cell: SweepCell) -> Value:
        return self.value(cell.metrics) if cell.metrics else None

    def point(self, cell: SweepCell) -> float | None:
        found = self.of(cell)
        return found.point if isinstance(found, Estimate) else found

    def cell_text(self, cell: SweepCell) -> str:
        point = self.point(cell)
        return "" if point is None else self.text(point)

    def interval_text(self, cell: SweepCell) -> str:
        found = self.of(cell)
        return interval(found, self.text) if isinstance(found, Estimate) else ""


def of_phase(
    phase: Phase, value: Callable[[PhaseMetrics], Value]
) -> Callable[[CellMetrics], Value]:
    def get(metrics: CellMetrics) -> Value:
        found = metrics.of(phase)
        return None if found is None else value(found)

    return get


def _bytes_per_step(metrics: PhaseMetrics) -> float | None:
    return metrics.traffic.required if metrics.traffic else None


def _weight_bytes(metrics: PhaseMetrics) -> float | None:
    return metrics.traffic.weights if metrics.traffic else None


def _kv_bytes(metrics: PhaseMetrics) -> float | None:
    return metrics.traffic.kv_read + metrics.traffic.kv_write if metrics.traffic else None


OUTPUT_RATE: Final = Quantity("output tok/s", lambda m: m.output_tokens_per_s, units.significant)
TTFT: Final = Quantity("TTFT", lambda m: m.ttft_s, units.seconds)
TPOT: Final = Quantity("TPOT", lambda m: m.tpot_s, units.seconds)
PREFILL_STEP: Final = Quantity(
    "prefill step", of_phase(Phase.PREFILL, lambda p: p.step_s), units.seconds
)
DECODE_STEP: Final = Quantity(
    "decode step", of_phase(Phase.DECODE, lambda p: p.step_s), units.seconds
)
MIXED_STEP: Final = Quantity("mixed step", of_phase(Phase.MIXED, lambda p: p.step_s), units.seconds)
PREFILL_RATE: Final = Quantity(
    "prompt tok/s", of_phase(Phase.PREFILL, lambda p: p.new_tokens_per_s), units.significant
)
PREFILL_ROOF: Final = Quantity(
    "prefill of roof", of_phase(Phase.PREFILL, lambda p: p.roof_fraction), units.percent
)
DECODE_ROOF: Final = Quantity(
    "decode of roof", of_phase(Phase.DECODE, lambda p: p.roof_fraction), units.percent
)
KV_TIME_SHARE: Final = Quantity(
    "KV of step", of_phase(Phase.DECODE, lambda p: p.kv_time_share), units.percent
)
KV_BYTES_SHARE: Final = Quantity(
    "KV of bytes", of_phase(Phase.DECODE, lambda p: p.kv_bytes_share), units.percent
)
KV_PEAK: Final = Quantity("KV held", lambda m: float(m.kv_peak_bytes), units.byte_count)

BYTES: Final = (
    Quantity("decode bytes", of_phase(Phase.DECODE, _bytes_per_step), units.decimal_bytes),
    Quantity("of weights", of_phase(Phase.DECODE, _weight_bytes), units.decimal_bytes),
    Quantity("of KV cache", of_phase(Phase.DECODE, _kv_bytes), units.decimal_bytes),
    KV_BYTES_SHARE,
    KV_TIME_SHARE,
    Quantity("weights stored", lambda m: float(m.weight_bytes), units.byte_count),
    KV_PEAK,
    Quantity("KV reserved", lambda m: float(m.kv_reserved_bytes), units.byte_count),
    Quantity(
        "GPU memory",
        lambda m: None if m.device_peak_bytes is None else float(m.device_peak_bytes),
        units.byte_count,
    ),
    Quantity("power", lambda m: m.power_w, lambda watts: units.si(watts, "W")),
)
"""How many bytes a decode step moves, and what lies in memory."""

TIMES: Final = (
    PREFILL_STEP,
    PREFILL_RATE,
    PREFILL_ROOF,
    DECODE_STEP,
    MIXED_STEP,
    OUTPUT_RATE,
    DECODE_ROOF,
    TTFT,
    TPOT,
)
"""Those that are measured, each with its interval."""


def limit_text(cell: SweepCell, phase: Phase) -> str:
    """Both answers of the phase's verdict: "memory side, saturated"."""
    found = cell.metrics.of(phase) if cell.metrics else None
    if found is None or found.limit is None:
        return ""
    limit = LIMIT_NAMES[found.limit]
    if found.saturation in (None, Saturation.UNKNOWN):
        return limit
    return f"{limit}, {SATURATION_NAMES[found.saturation]}"


def present(sweep: Sweep, quantities: tuple[Quantity, ...]) -> tuple[Quantity, ...]:
    """Those that at least one cell has."""
    return tuple(q for q in quantities if any(q.point(cell) is not None for cell in sweep.cells))
