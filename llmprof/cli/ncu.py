"""`llmprof ncu`: hardware counters of Nsight Compute beside what was counted."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmprof.cli.options import Json
from llmprof.cli.streams import print_json, result_console
from llmprof.errors import InputError
from llmprof.schema.cost import Phase

if TYPE_CHECKING:
    from llmprof.schema.run import RunRecord


def ncu(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="CSV of the raw page; none to be told how.", show_default=False
        ),
    ] = None,
    run: Annotated[
        str, typer.Option("--run", metavar="RUN", help="The run that the counts are taken from.")
    ] = "@last",
    phase: Annotated[
        str | None,
        typer.Option(
            "--phase",
            metavar="PHASE",
            help="Of every kernel: prefill, decode or mixed; needed without NVTX ranges.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps", metavar="N", min=1, help="Steps of a phase in the file; 1 by default."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Compare DRAM bytes and FLOPs that hardware counted with those that follow from shapes.

    Without FILE it prints the commands that profile each phase of the run, in NVTX ranges, and that
    compare it then. Measured over counted bytes above 1 are copies, scores and spilled activations;
    below 1 a cache served some. Hardware and analytic FLOPs are two quantities: padding and
    recomputation are in the first alone. Times under ncu are no speed.

    Examples:
      llmprof ncu

      llmprof ncu counters.decode.csv --run @last --steps 31

      llmprof ncu counters.csv --phase decode
    """
    from llmprof.store.runs import find_run

    named = _phase(phase)
    record = find_run(run)
    if file is None:
        _print_commands(record, named, steps, json=json)
    else:
        _print_comparison(record, file, named, steps or 1, json=json)


def _print_commands(
    record: "RunRecord", phase: Phase | None, steps: int | None, *, json: bool
) -> None:
    from llmprof.analysis.ncu_command import ncu_commands

    if steps is not None:
        raise InputError("--steps is about a FILE, and none was given", remedy="Leave it out")
    found = ncu_commands(record, phase)
    if json:
        print_json(found)
        return
    for one in found.commands:
        steps_of = "1 step" if one.steps == 1 else f"{one.steps} steps"
        typer.echo(f"# {one.phase.value}, {steps_of}\n{one.profile}\n{one.compare}\n")


def _print_comparison(
    record: "RunRecord", file: Path, phase: Phase | None, steps: int, *, json: bool
) -> None:
    from llmprof.analysis.ncu import compare_with_counters
    from llmprof.analysis.report import build_report
    from llmprof.renderers.ncu_text import render_ncu
    from llmprof.store.ncu_csv import read_ncu_csv

    kernels = read_ncu_csv(file)
    comparison = compare_with_counters(
        build_report(record), kernels, file=file.name, phase=phase, steps=steps
    )
    if json:
        print_json(comparison)
    else:
        render_ncu(comparison, result_console())


def _phase(text: str | None) -> Phase | None:
    if text is None:
        return None
    try:
        return Phase(text)
    except ValueError as error:
        known = ", ".join(phase.value for phase in Phase)
        raise InputError(f"--phase is '{text[:40]}'", remedy=f"Expected {known}") from error
