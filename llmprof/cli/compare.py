"""`llmprof compare`: two saved runs side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmprof.cli import options, streams
from llmprof.cli.report import damage_explained
from llmprof.errors import InputError

if TYPE_CHECKING:
    from llmprof.schema.comparison import Comparison

_SIDE = (
    "@last, @last~1, the start of a run's id, its last 8 characters, or a run file; several "
    "launches of one side are joined by commas."
)


def compare(
    baseline: Annotated[str, typer.Argument(metavar="BASELINE", help=_SIDE, show_default=False)],
    candidate: Annotated[str, typer.Argument(metavar="CANDIDATE", help=_SIDE, show_default=False)],
    output: options.Outputs = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Compare runs of other work or another machine, with a banner; overwrite files.",
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """Compare saved runs: each metric, whether a difference is shown, and where it lies.

    Both sides must have done the same work on the same machine and software; switches of the engine
    may differ. A difference is called real only with four launches a side and more: of one launch
    each nothing is claimed. A slower candidate is no error here: that is llmprof gate.

    For example:

      llmprof compare @last~1 @last

      llmprof compare @last~1 @last -o compare.html
    """
    outputs = [Path(path) for path in output or []]
    _check(outputs, force=force)
    references = [_launches(side) for side in (baseline, candidate)]
    with damage_explained([*references[0], *references[1]]):
        comparison = _compared(*references, force=force)
        files = [(path, _rendered(comparison, path.suffix)) for path in outputs]
    _write(files)
    if json:
        streams.print_json(comparison)
    elif not outputs:
        _show(comparison)


def _launches(side: str) -> list[str]:
    names = [name for name in side.split(",") if name]
    if not names:
        raise InputError("a side of the comparison is empty", remedy="Name a run, such as @last")
    return names


def _check(outputs: Sequence[Path], *, force: bool) -> None:
    """Find a wrong format or an unwritable file before any run is read."""
    from llmprof.renderers.comparison_documents import check_comparison_suffix
    from llmprof.store.outputs import check_writable

    for path in outputs:
        check_comparison_suffix(path.suffix)
        check_writable(path, force=force)


def _compared(baseline: Sequence[str], candidate: Sequence[str], *, force: bool) -> "Comparison":
    from llmprof.analysis.compare import compare_reports
    from llmprof.analysis.report import build_report
    from llmprof.store.noise_floors import launch_floors
    from llmprof.store.runs import find_run

    base = [build_report(find_run(name)) for name in baseline]
    cand = [build_report(find_run(name)) for name in candidate]
    return compare_reports(base, cand, force=force, noise_floors=launch_floors(base[0].run))


def _rendered(comparison: "Comparison", suffix: str) -> bytes:
    from llmprof.renderers.comparison_documents import render_comparison_file

    return render_comparison_file(comparison, suffix)


def _show(comparison: "Comparison") -> None:
    from llmprof.renderers.comparison_text import render_comparison

    render_comparison(comparison, streams.result_console())


def _write(files: Sequence[tuple[Path, bytes]]) -> None:
    from llmprof.store.outputs import write_atomic

    for path, data in files:
        write_atomic(path, data)
