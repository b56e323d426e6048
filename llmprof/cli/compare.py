"""`llmprof compare`: two saved runs side by side, or two settings measured in turns."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmprof.cli import options, streams
from llmprof.cli.report import damage_explained
from llmprof.errors import InputError
from llmprof.schema.settings import MAX_ROUNDS
from llmprof.store.settings_file import load_settings

if TYPE_CHECKING:
    from llmprof.schema.comparison import Comparison

_SIDE = (
    "@last, @last~1, the start of a run's id, its last 8 characters, or a run file; several "
    "launches of one side are joined by commas."
)


def compare(
    baseline: Annotated[
        str,
        typer.Argument(
            metavar="BASELINE|CONFIG",
            help=f"{_SIDE} With --base or --cand: a model or a settings file, measured now.",
            show_default=False,
        ),
    ],
    candidate: Annotated[
        str | None, typer.Argument(metavar="CANDIDATE", help=_SIDE, show_default=False)
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option(
            "--base",
            metavar="KEY=VALUE[,KEY=VALUE]",
            help="Measure both arms now, in turns; settings of the baseline.",
            show_default=False,
        ),
    ] = None,
    cand: Annotated[
        list[str] | None,
        typer.Option(
            "--cand",
            metavar="KEY=VALUE[,KEY=VALUE]",
            help="The same, settings of the candidate.",
            show_default=False,
        ),
    ] = None,
    sets: options.Sets = None,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", metavar="R", min=1, max=MAX_ROUNDS, help="Pairs to measure."),
    ] = None,
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="Random weights of the model's shape.")
    ] = False,
    device: options.Device = None,
    threads: options.Threads = None,
    output: options.Outputs = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Compare runs of other work or another machine, with a banner; overwrite files.",
        ),
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare two saved runs, or measure two settings in turns: what differs, and where it lies.

    Saved: both sides must have done the same work on the same machine and software; switches of the
    engine may differ. A difference is called real only by several launches a side, named with commas
    between them, and adjusted for all metrics that are looked at: six show one of eight. Of one launch
    each nothing is claimed.

    With --base or --cand both arms are measured now, A B B A. The baseline is run once by itself, and
    from it the candidate is predicted; that is on disk before the candidate is loaded. Pairs of rounds
    say what is shown (it takes six), and the ledger where prediction and measurement part.

    A slower candidate is no error here: that is llmprof gate.

    For example:

      llmprof compare @last~1 @last -o compare.html

      llmprof compare sample_configs/demo.yaml --base weights.quantization=none --cand weights.quantization=int8
    """
    outputs = [Path(path) for path in output or []]
    measuring = {
        "measure.rounds": rounds,
        "weights.source": "random" if random_weights else None,
        "device": device,
        "execution.threads": threads,
    }
    live = base is not None or cand is not None
    _check_call(candidate, live=live, measuring=[*filter(None, measuring.values()), *(sets or [])])
    _check(outputs, force=force)
    if live:
        from llmprof.cli.live_compare import arms, measured

        config = load_settings(baseline, measuring, sets or [])
        comparison = measured(*arms(config, base or [], cand or []), quiet=quiet)
    else:
        assert candidate is not None, "checked above"
        references = [_launches(side) for side in (baseline, candidate)]
        with damage_explained([*references[0], *references[1]]):
            comparison = _compared(*references, force=force)
    _write([(path, _rendered(comparison, path.suffix)) for path in outputs])
    if json:
        streams.print_json(comparison)
    elif live or not outputs:
        _show(comparison)


def _check_call(candidate: str | None, *, live: bool, measuring: Sequence[object]) -> None:
    """Whether the words fit together: two saved runs, or one configuration and its arms."""
    if live and candidate is not None:
        raise InputError(
            f"'{candidate}' is one word too many: with --base or --cand one configuration is measured",
            remedy="Give two saved runs, or one configuration with --base and --cand",
        )
    if live:
        return
    if candidate is None:
        raise InputError(
            "Missing argument 'CANDIDATE'",
            remedy="Name a second run, or measure two settings with --base and --cand KEY=VALUE",
        )
    if measuring:
        raise InputError(
            "saved runs are compared as they are: --set, --rounds, --random-weights, --device and "
            "--threads are for --base and --cand",
            remedy="Leave them out, or measure both with --base and --cand",
        )


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
