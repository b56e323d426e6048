"""`llmprof ncu`: hardware counters of Nsight Compute beside what was counted."""

from pathlib import Path
from typing import Annotated

import typer

from llmprof.cli.options import Json
from llmprof.cli.streams import print_json, result_console
from llmprof.errors import InputError
from llmprof.schema.cost import Phase


def ncu(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="CSV of the raw page.", show_default=False)
    ],
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
        int, typer.Option("--steps", metavar="N", min=1, help="Steps of a phase in the file.")
    ] = 1,
    json: Json = False,
) -> None:
    """Compare DRAM bytes and FLOPs that hardware counted with those that follow from shapes.

    Measured over counted bytes above 1 are copies, scores and spilled activations; below 1 a cache
    served some. Hardware and analytic FLOPs are two quantities: padding and recomputation are in
    the first alone. Times under ncu are no speed. Profile the same settings as the run:

      ncu --csv --page raw --print-units base --cache-control none --clock-control none
      --metrics gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum,
      sm__ops_path_tensor_src_bf16_dst_fp32.sum --log-file counters.csv llmprof run ...

    For example:

      llmprof ncu counters.csv --run @last --phase decode --steps 8
    """
    from llmprof.analysis.ncu import compare_with_counters
    from llmprof.analysis.report import build_report
    from llmprof.renderers.ncu_text import render_ncu
    from llmprof.store.ncu_csv import read_ncu_csv
    from llmprof.store.runs import find_run

    named = _phase(phase)
    kernels = read_ncu_csv(file)
    comparison = compare_with_counters(
        build_report(find_run(run)), kernels, file=file.name, phase=named, steps=steps
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
