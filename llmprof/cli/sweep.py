"""`llmprof sweep`: a grid of runs, one row per cell, taken up again after any end."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from llmprof.architectures.source import resolve_model
from llmprof.cli import options, streams
from llmprof.cli.interrupts import signals_interrupt
from llmprof.errors import InputError
from llmprof.schema.settings import MAX_ROUNDS, SweepSettings
from llmprof.store.settings_file import load_settings

if TYPE_CHECKING:
    from llmprof.schema.sweep import Sweep

EXIT_INTERRUPTED = 130
_TIME: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(s|ms|us|µs)")
_SECONDS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}


def sweep(
    model: options.ModelOrConfig,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="KEY=VALUES",
            help="One axis: 1,4,16 or 512-32768*2 or 0-90+30; repeatable, added to the file's.",
            show_default=False,
        ),
    ] = None,
    sets: options.Sets = None,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", metavar="R", min=1, max=MAX_ROUNDS, help="Repetitions per cell."),
    ] = None,
    interleave: Annotated[
        int | None,
        typer.Option(
            "--interleave",
            metavar="N",
            min=1,
            max=MAX_ROUNDS,
            help="Visit the cells N times in turn, each time for 1/N of the rounds: a machine that "
            "slows down then widens the intervals of all cells, and does not look like a trend of "
            "the last ones. Costs N loads and warm-ups per cell.",
            show_default=False,
        ),
    ] = None,
    ttft_max: Annotated[
        str | None,
        typer.Option(
            "--ttft-max",
            metavar="TIME",
            help="Name the largest batch that keeps this time to the first token: 200ms, 1.5s.",
        ),
    ] = None,
    tpot_max: Annotated[
        str | None,
        typer.Option(
            "--tpot-max", metavar="TIME", help="The same for the time per output token: 50ms."
        ),
    ] = None,
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="Random weights of the model's shape.")
    ] = False,
    device: options.Device = None,
    threads: options.Threads = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget what this sweep has measured, and start over.")
    ] = False,
    output: options.Outputs = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure a grid of settings, the cheapest cell first, and show how speed follows from them.

    Every cell is saved as it ends: after Ctrl-C or a crash the same command goes on where it was,
    and when all is measured it shows the result again. A cell that cannot fit, cannot be done or
    runs out of memory stays as a row with the reason. Axes can also stand in a settings file, in a
    group sweep: {grid: {...}}.

    Examples:
      llmprof sweep smollm2-135m-instruct --grid workload.batch=1,4,16 -o sweep.html

      llmprof sweep sample_configs/quantization.yaml -o quantization.html -o quantization.csv

      llmprof sweep llama-3.2-1b --random-weights --set workload.context=synthetic --grid workload.prompt_tokens=512-16384*2

      llmprof sweep smollm2-135m-instruct --grid workload.batch=1-32*2 --tpot-max 50ms
    """
    flags = {
        "device": device,
        "execution.threads": threads,
        "weights.source": "random" if random_weights else None,
        "measure.rounds": rounds,
        "sweep.interleave": interleave,
        "sweep.ttft_max_s": _seconds("--ttft-max", ttft_max),
        "sweep.tpot_max_s": _seconds("--tpot-max", tpot_max),
    }
    config = load_settings(model, flags, sets or [], grid or [])
    outputs = [Path(path) for path in output or []]
    _check_outputs(outputs, force=force)
    _check_limits(config.sweep)
    if not {"model", "weights.source"} & config.sweep.grid.keys():
        resolve_model(config.model, weights=config.weights.source)

    from llmprof.experiments.sweep import Signals, check_measured, run_sweep

    with (
        signals_interrupt() as interrupts,
        streams.progress_on_stderr(quiet=quiet) as progress,
    ):
        document = run_sweep(
            config,
            argv=("llmprof", *sys.argv[1:]),
            fresh=fresh,
            progress=progress,
            signals=Signals(hold=interrupts.hold, release=interrupts.release),
        )
    _tell(document, outputs, json=json)
    if document.status == "partial":
        raise typer.Exit(EXIT_INTERRUPTED)
    check_measured(document)


def _seconds(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    match = _TIME.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise InputError(
            f"{option} {text} is no time", remedy="Give a number and s, ms or us: 50ms"
        )
    return float(match[1]) * _SECONDS[match[2]]


def _check_limits(settings: SweepSettings) -> None:
    """A limit of latency chooses among batches: without any it would change nothing."""
    from llmprof.analysis.batch_choice import BATCH_KEYS

    given = {"--ttft-max": settings.ttft_max_s, "--tpot-max": settings.tpot_max_s}
    idle = [option for option, limit in given.items() if limit is not None]
    if idle and not any(key in settings.grid for key in BATCH_KEYS):
        raise InputError(
            f"{' and '.join(idle)} names the largest batch, and the grid has no axis of batches",
            remedy=f"Add --grid {BATCH_KEYS[0]}=1-16*2, or leave it out",
        )


def _check_outputs(outputs: Sequence[Path], *, force: bool) -> None:
    """Find an unwritable path or an unknown format before anything is measured."""
    from llmprof.renderers.sweep_formats import check_sweep_suffix
    from llmprof.store.outputs import check_writable

    for path in outputs:
        check_sweep_suffix(path.suffix)
        check_writable(path, force=force)


def _tell(document: "Sweep", outputs: Sequence[Path], *, json: bool) -> None:
    from llmprof.renderers.sweep_formats import render_sweep
    from llmprof.renderers.sweep_text import print_sweep
    from llmprof.store.outputs import write_atomic

    for path in outputs:
        write_atomic(path, render_sweep(document, path.suffix))
    if json:
        streams.print_json(document)
    else:
        print_sweep(document, streams.result_console(), written=[str(path) for path in outputs])
