import io
from datetime import timedelta

from rich.console import Console

from llmprof.renderers.ceilings_text import render_ceilings
from llmprof.schema.ceilings import Ceilings
from llmprof.schema.measurement import Caveat
from tests.unit.ceilings.factories import NOON, a_cpu, a_gpu, some_ceilings


def lines_of(ceilings: Ceilings, width: int = 100) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False)
    render_ceilings(ceilings, console, now=NOON + timedelta(days=2, hours=3))
    return [" ".join(line.split()) for line in stream.getvalue().splitlines()]


def test_what_was_measured_on_what_and_when() -> None:
    lines = lines_of(some_ceilings(a_cpu()))
    assert lines[0] == "cpu: a CPU, 2 threads, torch 2.13.0"
    assert lines[1] == "measured 2030-05-01 12:00 UTC, 2 d ago"


def test_each_ceiling_is_a_row_with_its_spread_and_kernel() -> None:
    rows = lines_of(some_ceilings(a_cpu()))
    assert "op level buffer best median spread kernel" in rows
    assert "read DRAM 512 MiB 30.0 GB/s 28.0 GB/s 5.0 % llmprof::read 4x" in rows
    assert "bf16 2048 x 1024 x 512 2.00 TFLOP/s 1.90 TFLOP/s 2.0 % torch.mm" in rows
    assert "fixed cost of one op: 3.00 µs (spread 10 %; intercept)" in rows


def test_what_threads_add_is_told_apart_from_the_fixed_cost() -> None:
    ceilings = some_ceilings(a_cpu())
    shared = ceilings.fixed_cost.model_copy(update={"parallel_s": 2e-6})
    text = " ".join(lines_of(ceilings.model_copy(update={"fixed_cost": shared}), width=200))
    assert "3.00 µs (spread 10 %; intercept); sharing an op among the threads adds 2.00 µs" in text


def test_the_figure_of_a_gpu_is_not_called_best() -> None:
    rows = lines_of(some_ceilings(a_gpu()))
    assert "op level buffer ceiling median spread kernel" in rows


def test_caveats_are_printed_with_what_to_do() -> None:
    caveats = (
        Caveat(code="ceilings-contended", message="busy", remedy="measure again"),
        Caveat(code="shared-cache", message="[not markup]"),
    )
    lines = lines_of(some_ceilings(a_cpu(), caveats=caveats))
    assert lines[-2:] == [
        "caveat ceilings-contended: busy (measure again)",
        "caveat shared-cache: [not markup]",
    ]


def test_a_usual_row_is_not_broken_at_eighty_columns() -> None:
    rows = lines_of(some_ceilings(a_cpu()), width=80)
    assert "read DRAM 512 MiB 30.0 GB/s 28.0 GB/s 5.0 % llmprof::read 4x" in rows
