"""`llmprof report`: judge saved runs again, and render them in any format."""

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from llmprof.cli import options, streams
from llmprof.errors import InputError

if TYPE_CHECKING:
    from llmprof.schema.report import Report

_LONGEST_REASON = 120
TEXT_FORMATS = ("md", "csv", "json", "html", "svg")
"""What may be written to stdout."""


def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="@last, @last~1, the start of a run's id, its last 8 characters, or a run file.",
            show_default=False,
        ),
    ],
    output: options.Outputs = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Print this format instead of the summary: md, csv, json, html or svg.",
            show_default=False,
        ),
    ] = None,
    ops: options.Ops = False,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Show saved runs, or write them to files: every number is computed again from the run file.

    For example:

      llmprof report @last

      llmprof report @last -o report.html -o roofline.svg

      llmprof report @last~1 @last --format csv

      llmprof report @last -o decode.trace.json    (open it at ui.perfetto.dev)
    """
    from llmprof.renderers.base import suffix_of

    outputs = [Path(path) for path in output or []]
    wanted = _stdout_format(format, json=json)
    _check(outputs, wanted, num_runs=len(runs), force=force)
    with damage_explained(runs):
        reports = _judged(runs)
        if ops:
            _require_ops(reports)
        files = [(path, _rendered(reports, suffix_of(path.name))) for path in outputs]
        text = _text(reports, wanted, ops=ops) if wanted or ops or not outputs else ""
    _write(files)
    sys.stdout.write(text)


def _stdout_format(format: str | None, *, json: bool) -> str | None:
    """The suffix of what stdout shall carry; None for the summary."""
    if json and format not in (None, "json"):
        raise InputError(f"--json and --format {format} contradict each other")
    name = "json" if json else format
    if name is not None and name not in TEXT_FORMATS:
        raise InputError(
            f"--format {name} is not a text format",
            remedy=f"Use {', '.join(TEXT_FORMATS)}, or write a file with -o",
        )
    return f".{name}" if name else None


def _check(outputs: Sequence[Path], wanted: str | None, *, num_runs: int, force: bool) -> None:
    """Find a wrong format or an unwritable file before any run is read."""
    from llmprof.renderers.base import check_suffix, suffix_of
    from llmprof.store.outputs import check_writable

    if wanted:
        check_suffix(wanted, num_runs=num_runs)
    for path in outputs:
        check_suffix(suffix_of(path.name), num_runs=num_runs)
        check_writable(path, force=force)


def _judged(runs: Sequence[str]) -> "tuple[Report, ...]":
    from llmprof.analysis.report import build_report
    from llmprof.store.runs import find_run

    return tuple(build_report(find_run(reference)) for reference in runs)


@contextmanager
def damage_explained(runs: Sequence[str]) -> Iterator[None]:
    """A file may fit the schema and hold numbers that no measurement gives.

    Raises:
        InputError: with what could not be computed from them.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, before what it leads to
            yield
    except (ArithmeticError, ValueError, LookupError) as error:
        raise InputError(
            f"the run file {', '.join(runs)} is damaged: no report can be computed from it "
            f"({_reason(error)})",
            remedy="Measure again; --debug shows where",
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{error.title}: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"{type(error).__name__}: {error}"[:_LONGEST_REASON]


def _rendered(reports: "Sequence[Report]", suffix: str) -> bytes:
    from llmprof.renderers.base import render_all

    return render_all(reports, suffix)


def _require_ops(reports: "Sequence[Report]") -> None:
    from llmprof.renderers.base import require_ops

    for judged in reports:
        require_ops(judged)


def _text(reports: "Sequence[Report]", suffix: str | None, *, ops: bool) -> str:
    """What goes to stdout: exactly one document, or the summaries."""
    if suffix:
        return _rendered(reports, suffix).decode()
    from llmprof.renderers.ops_text import render_ops
    from llmprof.renderers.run_text import render_run

    console = streams.result_console()
    with console.capture() as captured:
        for judged in reports:
            render_run(judged, console, footer=f"run {judged.run.id}")
            if ops:
                render_ops(judged, console)
    return captured.get()


def _write(files: Sequence[tuple[Path, bytes]]) -> None:
    from llmprof.store.outputs import write_atomic

    for path, data in files:
        write_atomic(path, data)
