"""The ceilings of a device in the terminal."""

from collections.abc import Collection
from datetime import datetime

from rich.console import Console
from rich.text import Text

from llmprof import units
from llmprof.renderers.ceilings_parts import PartTable, kernel_at_clock, part_tables
from llmprof.renderers.datasheet_text import datasheet_sentence
from llmprof.renderers.fitted_table import TextTable, fitted
from llmprof.renderers.whole_table import print_table
from llmprof.schema.ceilings import BandwidthCeiling, Ceilings, ComputeCeiling, FixedCost
from llmprof.schema.environment import Environment


def render_ceilings(
    ceilings: Ceilings, console: Console, *, now: datetime, parts: Collection[str] = ("base",)
) -> None:
    """Print the machine and the age, a table per part, alpha, the datasheet, and caveats."""
    console.print(Text(_machine(ceilings.environment)))
    console.print(Text(_age(ceilings, now)))
    if "base" in parts:
        _print_base(ceilings, console)
    for table in part_tables(ceilings, parts, now):
        _print_part(table, console)
    if ceilings.datasheet:
        sentence = datasheet_sentence(ceilings.datasheet)
        console.print(Text(f"datasheet (stated, not measured): {sentence}"))
    for caveat in ceilings.caveats:
        remedy = f" ({caveat.remedy})" if caveat.remedy else ""
        console.print(Text(f"caveat {caveat.code}: {caveat.message}{remedy}"))


def _print_base(ceilings: Ceilings, console: Console) -> None:
    console.print()
    _print_table(_bandwidth_table(ceilings), console)
    console.print()
    _print_table(_compute_table(ceilings), console)
    console.print()
    console.print(Text(_fixed_cost(ceilings)))


def _print_part(table: PartTable, console: Console) -> None:
    console.print()
    whole = TextTable(table.columns, table.rows, table.first_number)
    _print_table(whole, console, caption=table.caption)


def _print_table(whole: TextTable, console: Console, *, caption: str = "") -> None:
    """No cell is broken: what does not fit beside the numbers stands above or below them."""
    shown = fitted(whole, console.width)
    if said := "; ".join(filter(None, [caption, *shown.above])):
        console.print(Text(said))
    text = {
        index
        for index, column in enumerate(shown.columns)
        if index < shown.first_number or column == whole.columns[-1]
    }
    print_table(console, shown.columns, shown.rows, left=text)
    if shown.below:
        console.print(Text(shown.below, "dim"))


def _machine(environment: Environment) -> str:
    threads = units.number_of(environment.threads, "thread")
    torch = environment.versions.get("torch", "unknown")
    return f"{environment.device}: {environment.device_name}, {threads}, torch {torch}"


def _age(ceilings: Ceilings, now: datetime) -> str:
    age = units.age((now - ceilings.measured_at).total_seconds())
    return f"measured {ceilings.measured_at:%Y-%m-%d %H:%M} UTC, {age} ago"


def _bandwidth_table(ceilings: Ceilings) -> TextTable:
    columns = ("op", "level", "buffer", *_figures(ceilings))
    return TextTable(columns, tuple(map(_bandwidth_cells, ceilings.bandwidth)), first_number=2)


def _bandwidth_cells(ceiling: BandwidthCeiling) -> tuple[str, ...]:
    return (
        ceiling.op.value,
        ceiling.level,
        units.byte_count(ceiling.buffer_bytes),
        units.bytes_per_s(ceiling.bytes_per_s),
        units.bytes_per_s(ceiling.median_bytes_per_s),
        units.percent(ceiling.spread),
        ceiling.kernel,
    )


def _compute_table(ceilings: Ceilings) -> TextTable:
    columns = ("matmul", "m x n x k", *_figures(ceilings))
    return TextTable(columns, tuple(map(_compute_cells, ceilings.compute)), first_number=1)


def _compute_cells(ceiling: ComputeCeiling) -> tuple[str, ...]:
    return (
        ceiling.dtype,
        f"{ceiling.m} x {ceiling.n} x {ceiling.k}",
        units.flops_per_s(ceiling.flops_per_s),
        units.flops_per_s(ceiling.median_flops_per_s),
        units.percent(ceiling.spread),
        kernel_at_clock(ceiling),
    )


def _figures(ceilings: Ceilings) -> tuple[str, ...]:
    """A CPU's ceiling is the best of its repeats, a GPU's their median."""
    ceiling = "best" if ceilings.environment.device == "cpu" else "ceiling"
    return ceiling, "median", "spread", "kernel"


def _fixed_cost(ceilings: Ceilings) -> str:
    fixed = ceilings.fixed_cost
    shared = ""
    if fixed.parallel_s is not None:
        shared = f"; sharing an op among the threads adds {units.seconds(fixed.parallel_s)}"
    return (
        f"fixed cost of one op: {units.seconds(fixed.alpha_s)} "
        f"(spread {units.percent(fixed.spread)}; {fixed.method}){shared}{_of_kernels(fixed)}"
    )


def _of_kernels(fixed: FixedCost) -> str:
    """What a GPU has beside it: in a graph, of a kernel without bytes, and of the host."""
    named = (
        ("in a CUDA graph", fixed.graph_s),
        ("a kernel of one element", fixed.small_s),
        ("in a graph", fixed.small_graph_s),
        ("the host's launch from Python", fixed.launch_s),
    )
    told = [f"{name} {units.seconds(time_s)}" for name, time_s in named if time_s is not None]
    return "".join(f"; {one}" for one in told)
