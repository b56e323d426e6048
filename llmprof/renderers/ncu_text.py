"""Counters against counts, in the terminal."""

from collections.abc import Callable, Iterator

from rich.console import Console
from rich.text import Text

from llmprof import units
from llmprof.renderers.whole_table import print_table
from llmprof.renderers.wording import one_line
from llmprof.schema.ncu import NcuComparison, NcuPhase

_ABSENT = "not known"
_COLUMNS = ("quantity", "per step", "source")


def render_ncu(comparison: NcuComparison, console: Console) -> None:
    """One table per phase, then what is missing and why."""
    console.print(Text(f"{one_line(comparison.file)} beside run {one_line(comparison.run_id)}"))
    for phase in comparison.phases:
        console.print()
        steps = "1 step" if phase.steps == 1 else f"{phase.steps} steps"
        console.print(Text(f"{phase.phase.value}: per step, of {steps}, {phase.kernels} kernels"))
        print_table(console, _COLUMNS, list(_rows(phase)), left=(0, 2), broken=(2,))
        for name, reason in phase.missing.items():
            console.print(Text(f"{name}: {one_line(reason)}"))


def _rows(phase: NcuPhase) -> Iterator[tuple[str, str, str]]:
    yield "DRAM bytes, measured", _or_absent(phase.dram_bytes, units.decimal_bytes), "ncu"
    yield "bytes, counted", _or_absent(phase.counted_bytes, units.decimal_bytes), "counted"
    yield (
        "bytes with activations, counted",
        _or_absent(phase.counted_bytes_with_activations, units.decimal_bytes),
        "counted",
    )
    yield "measured over counted", _or_absent(phase.amplification, units.ratio), "ncu, counted"
    yield "hardware FLOP", _or_absent(phase.hardware_flops, units.flops), "ncu: what units did"
    yield "analytic FLOP", _or_absent(phase.analytic_flops, units.flops), "counted: what is needed"
    yield (
        "kernel time under ncu",
        _or_absent(phase.gpu_time_s, units.seconds),
        "ncu: no rate follows from it",
    )


def _or_absent(value: float | None, text: Callable[[float], str]) -> str:
    return _ABSENT if value is None else text(value)
