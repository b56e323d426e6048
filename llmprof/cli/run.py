"""`llmprof run`: measure one workload, say what bounds each phase, keep the raw samples."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmprof.architectures.source import check_source
from llmprof.cli import options, streams
from llmprof.cli.interrupts import Interrupts, signals_interrupt
from llmprof.cli.switched import check_unlike, switched
from llmprof.engine.launch_environment import launch_from
from llmprof.errors import CapabilityError, MeasurementFailedError
from llmprof.schema.settings import MAX_ROUNDS, MAX_SEQUENCES, MAX_TOKENS, Pass, RunConfig
from llmprof.store.settings_file import load_settings

if TYPE_CHECKING:
    from llmprof.schema.report import Report
    from llmprof.schema.run import RunRecord

EXIT_INTERRUPTED = 130


def run(
    model: options.ModelOrConfig,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch", "-b", metavar="B", min=1, max=MAX_SEQUENCES, help="Sequences at once."
        ),
    ] = None,
    prompt_tokens: Annotated[
        int | None,
        typer.Option(
            "--prompt-tokens", metavar="T", min=1, max=MAX_TOKENS, help="Tokens of a prompt."
        ),
    ] = None,
    output_tokens: Annotated[
        int | None,
        typer.Option(
            "--output-tokens", metavar="N", min=1, max=MAX_TOKENS, help="Tokens to generate."
        ),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", metavar="DTYPE", help="as_stored, fp32, bf16 or fp16.")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", metavar="R", min=1, max=MAX_ROUNDS, help="Repetitions kept."),
    ] = None,
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="Random weights of the model's shape.")
    ] = False,
    confirm: Annotated[
        str | None,
        typer.Option(
            "--confirm",
            metavar="KEY=VALUE[,KEY=VALUE]",
            help="Then predict this change, measure both in turn, and explain the difference.",
            show_default=False,
        ),
    ] = None,
    confirm_verdict: Annotated[
        bool,
        typer.Option(
            "--confirm-verdict",
            help="Test the verdicts: change one thing at a time (about a minute).",
        ),
    ] = False,
    device: options.Device = None,
    threads: options.Threads = None,
    sets: options.Sets = None,
    ops: options.Ops = False,
    nvtx: Annotated[
        bool,
        typer.Option("--nvtx", help="Run one more round, with NVTX ranges for ncu and nsys (GPU)."),
    ] = False,
    output: options.Outputs = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure one workload and judge prefill and decode against ceilings of this device.

    Ctrl-C, SIGTERM and SIGHUP end it with 130, an error in a later round with 6: the rounds measured
    so far are saved, marked partial.
    --ops, and outputs that show ops, add a tracing pass to measure.passes; --nvtx adds nvtx.
    Of a settings file, `gate` and `sweep` are for the commands of that name and change nothing here;
    any other setting without effect is refused.
    parallel.tensor=N needs N processes: torchrun --nproc-per-node N -m llmprof run ...

    Examples:
      llmprof run smollm2-135m-instruct -o report.html

      llmprof run llama-3.2-1b --random-weights --dtype bf16 --prompt-tokens 128

      llmprof run sample_configs/demo.yaml --set workload.batch=4

      llmprof run smollm2-135m-instruct --confirm weights.quantization=int4
    """
    flags = {
        "device": device,
        "execution.threads": threads,
        "weights.dtype": dtype,
        "weights.source": "random" if random_weights else None,
        "workload.batch": batch,
        "workload.prompt_tokens": prompt_tokens,
        "workload.output_tokens": output_tokens,
        "measure.rounds": rounds,
        "measure.confirm": True if confirm_verdict else None,
    }
    config = load_settings(
        model, {key: value for key, value in flags.items() if value is not None}, sets or []
    )
    target = None
    if confirm is not None:
        target = switched(config, [confirm], option="--confirm")
        check_unlike(config, target, told=f"--confirm {confirm}")
        _check_one_process(config)
    outputs = [Path(path) for path in output or []]
    config = _with_pass(config, Pass.TRACING) if ops or _show_ops(outputs) else config
    config = _with_pass(config, Pass.NVTX) if nvtx else config
    launch = launch_from(os.environ)
    if not launch.leads:
        _follow(config)
        return
    _check_outputs(outputs, force=force)
    if launch.world_size == 1:  # of several processes each refuses, when the others know of it
        check_source(config)

    with signals_interrupt() as interrupts:
        record, saved = _measured(config, interrupts, quiet=quiet)
        try:
            interrupts.release()
            name = "@last" if target is None else _lasting_name(record)
            silent = json and target is not None
            _tell(record, saved, outputs, name=name, ops=ops, json=json, silent=silent)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"the run is saved in {os.path.relpath(saved)}") from None
    if record.failed:
        raise typer.Exit(MeasurementFailedError.exit_code)
    if record.status == "partial":
        raise typer.Exit(EXIT_INTERRUPTED)
    if target is not None:
        _confirm(record, saved, target, outputs, json=json, quiet=quiet)


def _check_one_process(config: RunConfig) -> None:
    if config.parallel.tensor > 1:
        raise CapabilityError(
            f"--confirm is not available with parallel.tensor={config.parallel.tensor}: it measures "
            "both settings in one process",
            remedy="Measure the two settings one after the other, and compare the runs",
        )


def _confirm(
    record: "RunRecord",
    saved: Path,
    target: RunConfig,
    outputs: Sequence[Path],
    *,
    json: bool,
    quiet: bool,
) -> None:
    """Measure the pairs; the base run's file and outputs get the outcome beside its prediction.

    Raises:
        KeyboardInterrupt: it says where the base run is; pairs that are not complete tell nothing.
    """
    from llmprof.experiments.confirm import compare_switch
    from llmprof.renderers.comparison_text import render_comparison
    from llmprof.store.runs import save_run

    with signals_interrupt(), streams.progress_on_stderr(quiet=quiet) as progress:
        try:
            document = compare_switch(
                record, target, argv=("llmprof", *sys.argv[1:]), progress=progress
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"the run is saved in {os.path.relpath(saved)}") from None
    outcome = document.live.confirmation if document.live else None
    if outcome is not None:
        confirmed = record.model_copy(update={"confirmations": (*record.confirmations, outcome)})
        save_run(confirmed)
        _write_outputs(confirmed, outputs)
    if json:
        streams.print_json(document)
        return
    console = streams.result_console()
    console.print()
    render_comparison(document, console)
    for path in outputs:
        console.print(f"report    {path}", soft_wrap=True)


def _follow(config: RunConfig) -> None:
    """Compute what another process of the group measures."""
    from llmprof.placement import follow

    follow(config, argv=("llmprof", *sys.argv[1:]))


def _write_outputs(record: "RunRecord", outputs: Sequence[Path]) -> "Report":
    from llmprof.analysis.report import build_report
    from llmprof.renderers.base import render, suffix_of
    from llmprof.store.outputs import write_atomic

    report = build_report(record)
    for path in outputs:
        write_atomic(path, render(report, suffix_of(path.name)))
    return report


def _measured(
    config: RunConfig, interrupts: Interrupts, *, quiet: bool
) -> "tuple[RunRecord, Path]":
    """Measure and save; no interrupt gets between the last round and the file."""
    from llmprof.profiler import profile
    from llmprof.store.runs import save_run

    with streams.progress_on_stderr(quiet=quiet) as progress:
        record = profile(
            config,
            argv=("llmprof", *sys.argv[1:]),
            progress=progress,
            before_saving=interrupts.hold,
        )
        saved = save_run(record)
        if config.measure.confirm and record.status == "complete":
            from llmprof.experiments.confirmation import confirm_verdicts

            interrupts.release()
            record = confirm_verdicts(config, record, progress=progress)
            interrupts.hold()
            saved = save_run(record)
    return record, saved


def _tell(
    record: "RunRecord",
    saved: Path,
    outputs: Sequence[Path],
    *,
    name: str,
    ops: bool,
    json: bool,
    silent: bool,
) -> None:
    """`name` is what other commands find the run by; `silent`: another document takes stdout."""
    from llmprof.renderers.ops_text import render_ops
    from llmprof.renderers.run_text import render_run

    report = _write_outputs(record, outputs)
    if silent:
        return
    if json:
        streams.print_json(report)
        return
    console = streams.result_console()
    render_run(report, console, footer=_footer(saved, outputs, name))
    if ops:
        render_ops(report, console)


def _with_pass(config: RunConfig, added: Pass) -> RunConfig:
    passes = dict.fromkeys((*config.measure.passes, added))
    measure = config.measure.model_copy(update={"passes": tuple(passes)})
    return config.model_copy(update={"measure": measure})


def _show_ops(outputs: Sequence[Path]) -> bool:
    from llmprof.renderers.base import OF_OPS, suffix_of

    return any(suffix_of(path.name) in OF_OPS for path in outputs)


def _check_outputs(outputs: list[Path], *, force: bool) -> None:
    """Find an unwritable path or an unknown format before anything is measured."""
    from llmprof.renderers.base import check_suffix, suffix_of
    from llmprof.store.outputs import check_writable
    from llmprof.store.runs import check_runs_writable

    check_runs_writable()
    for path in outputs:
        check_suffix(suffix_of(path.name))
        check_writable(path, force=force)


def _lasting_name(record: "RunRecord") -> str:
    """What finds this run when those of the pairs have been saved after it."""
    from llmprof.renderers.listing_text import short_name

    return short_name(record.id)


def _footer(saved: Path, outputs: Sequence[Path], name: str) -> str:
    lines = [f"run file  {os.path.relpath(saved)}"]
    lines += [f"report    {path}" for path in outputs]
    if not outputs:
        lines.append(f"next      llmprof report {name} -o report.html")
    return "\n".join(lines)
