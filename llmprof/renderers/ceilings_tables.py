"""The ceilings of a run as tables: the live readings, and what was measured once and cached."""

from collections.abc import Callable
from statistics import mode

from llmprof import units
from llmprof.renderers.ceilings_parts import kernel_at_clock
from llmprof.renderers.estimates import Formatter, confidence, interval
from llmprof.renderers.round_series import round_median_s
from llmprof.renderers.tables import Table
from llmprof.renderers.wording import one_line
from llmprof.schema.ceilings import BandwidthCeiling, CeilingReading, ComputeCeiling
from llmprof.schema.measurement import Estimate
from llmprof.schema.report import Report, Roof
from llmprof.schema.run import Round

MAX_ROUNDS = 40
"""A longer series is thinned in the table: every n-th round is listed."""


def roof_table(report: Report) -> Table:
    """The live ceilings that everything was judged by."""
    return Table(
        caption="Live ceilings, read between the rounds: this run is judged by them",
        columns=("ceiling", "median", "interval", "confidence of samples", "kernel"),
        rows=_roof_rows(report.roof, _matmul_shape(report)) if report.roof else (),
        prose=frozenset({4}),
    )


def _roof_rows(roof: Roof, matmul_shape: str) -> tuple[tuple[str, ...], ...]:
    dtype = one_line(roof.matmul_dtype)
    rows = [
        _roof_row(
            f"read from {one_line(roof.read_level)}",
            roof.read_bytes_per_s,
            units.bytes_per_s,
            roof.read_kernel,
        ),
        _roof_row(f"{dtype} matmul", roof.matmul_flops_per_s, units.flops_per_s, matmul_shape),
    ]
    if roof.skinny_bytes_per_s:
        name = f"skinny matmul, rows: {roof.skinny_rows or 'unnamed'}"
        kernel = roof.skinny_kernel or "unnamed"
        rows.append(_roof_row(name, roof.skinny_bytes_per_s, units.bytes_per_s, kernel))
    fixed = ("fixed cost of one op", units.seconds(roof.alpha_s), "", "", "see below")
    return (*rows, fixed)


def _roof_row(name: str, estimate: Estimate, text: Formatter, kernel: str) -> tuple[str, ...]:
    value = (text(estimate.point), interval(estimate, text), confidence(estimate))
    return (name, *value, one_line(kernel))


def _matmul_shape(report: Report) -> str:
    """The shape that won most readings: each reading tries several."""
    shapes = [r.after.matmul_shape for r in report.run.rounds if r.after]
    return f"{' x '.join(map(str, mode(shapes)))} (m x n x k)" if shapes else "shape unknown"


def cached_table(report: Report) -> Table:
    """The other ceilings of this device, with their age."""
    ceilings = report.run.ceilings
    fixed = ceilings.fixed_cost
    return Table(
        caption=(
            "Other ceilings, measured once per device and software "
            f"({ceilings.measured_at:%Y-%m-%d %H:%M} UTC)"
        ),
        columns=("ceiling", "best", "median", "spread (IQR/median)", "kernel"),
        rows=(
            *(_bandwidth_row(ceiling) for ceiling in ceilings.bandwidth),
            *(_compute_row(ceiling) for ceiling in ceilings.compute),
            (
                "fixed cost of one op",
                units.seconds(fixed.alpha_s),
                "",
                units.percent(fixed.spread),
                one_line(fixed.method),
            ),
        ),
        prose=frozenset({4}),
    )


def _bandwidth_row(ceiling: BandwidthCeiling) -> tuple[str, ...]:
    return (
        f"{ceiling.op.value}, {one_line(ceiling.level)}, {units.byte_count(ceiling.buffer_bytes)}",
        units.bytes_per_s(ceiling.bytes_per_s),
        units.bytes_per_s(ceiling.median_bytes_per_s),
        units.percent(ceiling.spread),
        one_line(ceiling.kernel),
    )


def _compute_row(ceiling: ComputeCeiling) -> tuple[str, ...]:
    return (
        f"{one_line(ceiling.dtype)} matmul, {ceiling.m} x {ceiling.n} x {ceiling.k}",
        units.flops_per_s(ceiling.flops_per_s),
        units.flops_per_s(ceiling.median_flops_per_s),
        units.percent(ceiling.spread),
        one_line(kernel_at_clock(ceiling)),
    )


def rounds_table(report: Report) -> Table:
    """One line per round: its median steps, the readings around it, and who else was running."""
    rounds = report.run.rounds
    every = max(1, -(-len(rounds) // MAX_ROUNDS))
    thinned = f" (one of every {every}, of {len(rounds)})" if every > 1 else ""
    return Table(
        caption=f"Rounds{thinned}: median steps, and the readings before and after them",
        columns=("round", *(phase.value for phase in report.run.phases), *_READINGS, "run queue"),
        rows=tuple(_round_row(round_, report) for round_ in rounds[::every]),
    )


_READINGS = ("read", "matmul", "skinny matmul")


def _round_row(round_: Round, report: Report) -> tuple[str, ...]:
    steps = (round_median_s(round_, phase) for phase in report.run.phases)
    waited = round_.contention.run_queue_fraction
    return (
        str(round_.index),
        *("none" if step is None else units.seconds(step) for step in steps),
        _around(round_, lambda r: r.read_bytes_per_s, units.bytes_per_s),
        _around(round_, lambda r: r.matmul_flops_per_s, units.flops_per_s),
        _around(round_, lambda r: r.skinny.bytes_per_s if r.skinny else None, units.bytes_per_s),
        "not known" if waited is None else units.percent(waited),
    )


def _around(round_: Round, value: Callable[[CeilingReading], float | None], text: Formatter) -> str:
    """Before and after the round: "28.0 GB/s, 27.4 GB/s"."""
    values = (value(r) if r else None for r in (round_.before, round_.after))
    return ", ".join("none" if value is None else text(value) for value in values)
