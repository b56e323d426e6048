"""`llmprof ceilings`: what this device can do at best."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from llmprof.cli import options, streams


def ceilings(
    device: options.Device = None,
    threads: options.Threads = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Measure again, whatever the cache holds.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show what this device can do at best: bandwidth per level of memory, FLOP/s per dtype.

    Measured in about 15 s and then cached for 30 days, per device, torch and threads. Copy counts
    the bytes of its source and its target, triad those of all three arrays; spread is the
    interquartile range over the median of the repeats. A level such as "LLC or DRAM" is one that
    neither size nor rate can tell.

    For example:

      llmprof ceilings

      llmprof ceilings --threads 1 --refresh --json
    """
    from llmprof.ceilings.measure import cached_ceilings
    from llmprof.engine.device import resolve_device
    from llmprof.instruments.snapshot import resolve_threads, snapshot
    from llmprof.renderers.ceilings_text import render_ceilings

    resolved = resolve_device(options.checked_device(device or "auto", option="--device"))
    environment = snapshot(resolved, resolve_threads(threads))
    with streams.progress_on_stderr(quiet=quiet) as progress:
        document = cached_ceilings(environment, resolved, refresh=refresh, progress=progress)
    if json:
        streams.print_json(document)
    else:
        render_ceilings(document, streams.result_console(), now=datetime.now(UTC))
