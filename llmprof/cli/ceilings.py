"""`llmprof ceilings`: what this device can do at best."""

from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from llmprof.cli import options, streams
from llmprof.errors import InputError

BASE: Final = "base"
_COLLECTIVES: Final = "collectives"
USUAL: Final = (BASE, "skinny", "attention", "host", "gpm")
PARTS: Final = (*USUAL, "sustained", _COLLECTIVES)
_USUAL_PROCESSES: Final = 2


def ceilings(
    device: options.Device = None,
    threads: options.Threads = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="PART",
            help=f"Measure and show this part alone: {', '.join(PARTS)}; repeatable. The last two "
            "are measured only when named.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            metavar="SECONDS",
            min=0.1,
            max=3600,
            help="Of measuring for the parts beyond base, all together.",
            show_default=False,
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            metavar="N",
            min=2,
            max=64,
            help="Of the collectives; 2 by default.",
            show_default=False,
        ),
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Measure again, whatever the cache holds.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show what this device can do at best, and what its vendor states, where that is known.

    base is bandwidth per level of memory, FLOP/s per dtype and the fixed cost of an op: about 15 s,
    and all that a run needs. skinny and attention are the engine's own kernels in every format,
    host what a step costs in each execution mode, sustained the matmuls after seconds without a
    pause, collectives what processes take to exchange, gpm what the DRAM counter of a GPU shows
    under the read kernel. Everything is cached for 30 days per device,
    torch and threads. Copy counts the bytes of its source and its target, triad those of all three
    arrays; spread is the interquartile range over the median of the repeats. A level such as "LLC
    or DRAM" is one that neither size nor rate can tell.

    For example:

      llmprof ceilings

      llmprof ceilings --only sustained --budget 30

      llmprof ceilings --threads 1 --refresh --json
    """
    parts = _parts(only, processes)

    from llmprof.ceilings.complete import ExtraPart, complete_ceilings
    from llmprof.engine.device import resolve_device
    from llmprof.instruments.snapshot import resolve_threads, snapshot
    from llmprof.renderers.ceilings_text import render_ceilings

    resolved = resolve_device(options.checked_device(device or "auto", option="--device"))
    environment = snapshot(resolved, resolve_threads(threads))
    with streams.progress_on_stderr(quiet=quiet) as progress:
        document = complete_ceilings(
            environment,
            resolved,
            [ExtraPart(part) for part in parts if part != BASE],
            refresh=refresh,
            refresh_base=refresh and BASE in parts,
            budget_s=budget,
            processes=processes or _USUAL_PROCESSES,
            progress=progress,
        )
    if json:
        streams.print_json(document)
    else:
        now = datetime.now(UTC)
        render_ceilings(document, streams.result_console(), now=now, parts=parts)


def _parts(only: list[str] | None, processes: int | None) -> tuple[str, ...]:
    for part in only or ():
        if part not in PARTS:
            raise InputError(f"--only is '{part[:60]}'", remedy=f"Expected {', '.join(PARTS)}")
    if processes is not None and _COLLECTIVES not in (only or ()):
        raise InputError(
            f"--processes {processes} is about the collectives, which are not measured here",
            remedy=f"Add --only {_COLLECTIVES}, or leave it out",
        )
    return tuple(dict.fromkeys(only)) if only else USUAL
