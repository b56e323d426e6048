"""`llmprof gate`: fail on a real regression, and on nothing else."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmprof.cli import gate_outputs, options, streams
from llmprof.cli.gate_outputs import GateOutputs
from llmprof.cli.interrupts import signals_interrupt
from llmprof.cli.report import damage_explained
from llmprof.errors import InputError
from llmprof.schema.settings import GateSettings, RunConfig
from llmprof.store.settings_file import is_settings_file, load_settings

if TYPE_CHECKING:
    from llmprof.experiments.arm_process import ArmPlan
    from llmprof.schema.gate_result import GateResult, SettingsLocation
    from llmprof.schema.report import Report

app = typer.Typer(
    help="Performance gate for CI: run, check or calibrate.",
    epilog="Exit codes: 0 pass (inconclusive too, unless gate.on_inconclusive is fail), "
    "1 regression, 2 bad input, 3 inconclusive, 4 not comparable, 5 unstable machine, "
    "6 measurement failed, 7 capability missing.",
)

_Candidate = Annotated[
    str,
    typer.Argument(metavar="CONFIG", help="Settings of the candidate (.yaml), or a model."),
]
_Underpowered = Annotated[
    bool,
    typer.Option(
        "--allow-underpowered", help="Gate below the calibrated noise floor all the same."
    ),
]


@app.command("run")
def gate_run(
    candidate: _Candidate,
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="CONFIG", help="Settings of the baseline."),
    ] = None,
    base_ref: Annotated[
        str | None,
        typer.Option(
            "--base-ref", metavar="REF", help="The same settings file as a git ref has it."
        ),
    ] = None,
    base_python: Annotated[
        str | None,
        typer.Option(
            "--base-python",
            metavar="PYTHON",
            help="Interpreter of the baseline's environment, with its own llmprof and torch.",
        ),
    ] = None,
    sets: options.Sets = None,
    output: gate_outputs.Outputs = None,
    junit: gate_outputs.Junit = None,
    summary: gate_outputs.Summary = None,
    code_quality: gate_outputs.CodeQuality = None,
    benchmark: gate_outputs.Benchmark = None,
    benchmark_bigger: gate_outputs.BenchmarkBigger = None,
    bencher: gate_outputs.Bencher = None,
    ci: gate_outputs.Ci = True,
    allow_underpowered: _Underpowered = False,
    allow_other_outputs: Annotated[
        bool,
        typer.Option(
            "--allow-other-outputs", help="The candidate may give other tokens than the baseline."
        ),
    ] = False,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure candidate and baseline in turns, in worker processes on this machine, and judge.

    A metric fails only if it is worse beyond chance and by its tolerance or more, and is so again in
    new processes. --set applies to both arms.

    For example:

      llmprof gate run gate.yaml --base-ref origin/main --junit gate.xml

      llmprof gate run new.yaml --base old.yaml -o gate.html
    """
    outputs = GateOutputs(
        files=output or [],
        junit=junit,
        summary=summary,
        code_quality=code_quality,
        benchmark=benchmark,
        benchmark_bigger=benchmark_bigger,
        bencher=bencher,
        ci=ci,
        json=json,
    )
    outputs.check(force=force)
    with outputs.errors_told(), signals_interrupt():
        plans = _plans(candidate, base, base_ref, base_python, sets or [])
        location = _location(candidate)
        result = _measured(
            plans,
            location,
            quiet=quiet,
            allow_underpowered=allow_underpowered,
            allow_other_outputs=allow_other_outputs,
        )
    _end(result, outputs)


@app.command("check")
def gate_check(
    candidate: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Saved run to judge; several launches are joined by commas."
        ),
    ],
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", metavar="RUN", help="Saved run, or several, of the same work here."
        ),
    ] = None,
    settings: Annotated[
        str | None,
        typer.Option(
            "--settings",
            metavar="CONFIG",
            help="Take the gate's settings from this file instead of the run.",
        ),
    ] = None,
    output: gate_outputs.Outputs = None,
    junit: gate_outputs.Junit = None,
    summary: gate_outputs.Summary = None,
    code_quality: gate_outputs.CodeQuality = None,
    benchmark: gate_outputs.Benchmark = None,
    benchmark_bigger: gate_outputs.BenchmarkBigger = None,
    bencher: gate_outputs.Bencher = None,
    ci: gate_outputs.Ci = True,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Judge a saved run by a saved baseline and by absolute budgets; nothing is measured.

    Counts are compared exactly. Times of single launches pass or fail only against the noise floor that
    gate calibrate found here. Five launches a side (four for a single metric) are tested, and their roof
    fractions too.

    For example:

      llmprof gate check @last --baseline main.run.json --settings gate.yaml
    """
    outputs = GateOutputs(
        files=output or [],
        junit=junit,
        summary=summary,
        code_quality=code_quality,
        benchmark=benchmark,
        benchmark_bigger=benchmark_bigger,
        bencher=bencher,
        ci=ci,
        json=json,
    )
    outputs.check(force=force)
    with outputs.errors_told():
        result = _checked(candidate, baseline, settings)
    _end(result, outputs)


@app.command("calibrate")
def gate_calibrate(
    config: _Candidate,
    sets: options.Sets = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure the same settings as both arms, keep this machine's noise, refuse tolerances below it.

    For example:

      llmprof gate calibrate sample_configs/gate.yaml
    """
    from llmprof.experiments.gate_calibrate import calibrate_gate
    from llmprof.renderers.gate_text import render_noise
    from llmprof.store.noise_floors import save_noise_floor
    from llmprof.store.runs import check_runs_writable

    settings = load_settings(config, {}, sets or [])
    check_runs_writable()  # before minutes are spent on what could not be kept
    with signals_interrupt(), streams.progress_on_stderr(quiet=quiet) as progress:
        calibration = calibrate_gate(settings, progress=progress)
    path = save_noise_floor(calibration.floor)
    if json:
        streams.print_json(calibration.floor)
    else:
        render_noise(calibration.floor, streams.result_console())
        sys.stdout.write(f"kept in {path}\n")
    if calibration.too_tight:
        sys.stdout.flush()
        raise InputError(
            f"a gate below the noise floor fails at random: {'; '.join(calibration.too_tight)}",
            remedy="Raise the tolerance or gate.rounds, or quiet the machine",
        )


def _plans(
    candidate: str,
    base: str | None,
    base_ref: str | None,
    base_python: str | None,
    sets: Sequence[str],
) -> "tuple[ArmPlan, ArmPlan]":
    """Baseline and candidate."""
    from llmprof.experiments.arm_process import ArmPlan
    from llmprof.experiments.gate_base import settings_at_ref

    if base is not None and base_ref is not None:
        raise InputError("--base and --base-ref contradict each other", remedy="Give one of them")
    if base is None and base_ref is None and base_python is None:
        raise InputError(
            "there is nothing to compare the candidate with",
            remedy="Give --base CONFIG, --base-ref REF or --base-python PYTHON",
        )
    config = load_settings(candidate, {}, sets)
    baseline, label = config, base or candidate
    if base is not None:
        baseline = load_settings(base, {}, sets)
    elif base_ref is not None:
        if not is_settings_file(candidate):
            raise InputError("--base-ref needs a settings file (.yaml), and got a model")
        baseline = settings_at_ref(Path(candidate), base_ref, sets)
        label = f"{candidate} at {base_ref}"
    if base_python is not None:
        label = f"{label} by {base_python}"
    return ArmPlan(label, baseline, base_python), ArmPlan(candidate, config)


def _measured(
    plans: "tuple[ArmPlan, ArmPlan]",
    location: "SettingsLocation | None",
    *,
    quiet: bool,
    allow_underpowered: bool,
    allow_other_outputs: bool,
) -> "GateResult":
    from llmprof.experiments.gate_run import run_gate

    with streams.progress_on_stderr(quiet=quiet) as progress:
        return run_gate(
            *plans,
            progress=progress,
            argv=("llmprof", *sys.argv[1:]),
            location=location,
            allow_underpowered=allow_underpowered,
            allow_other_outputs=allow_other_outputs,
        )


def _location(config: str) -> "SettingsLocation | None":
    from llmprof.schema.gate_result import SettingsLocation
    from llmprof.store.settings_file import setting_line

    if not is_settings_file(config):
        return None
    line = setting_line(Path(config), "gate.tolerance", "gate.metrics", "gate")
    return SettingsLocation(file=config, line=line)


def _checked(candidate: str, baseline: str | None, settings: str | None) -> "GateResult":
    from llmprof.experiments.gate_saved import check_saved
    from llmprof.store.noise_floors import launch_floors

    names = [_names(candidate), [] if baseline is None else _names(baseline)]
    if settings is not None and not is_settings_file(settings):
        raise InputError(
            f"--settings {settings} is no settings file",
            remedy="Give a .yaml file, such as sample_configs/gate.yaml",
        )
    own: RunConfig | None = None if settings is None else load_settings(settings, {}, [])
    with damage_explained([*names[0], *names[1]]):
        cand, base = ([_report(name) for name in side] for side in names)
        gate: GateSettings = own.gate if own else cand[0].run.settings.gate
        return check_saved(
            base,
            cand,
            gate,
            floors=launch_floors(cand[0].run),
            argv=("llmprof", *sys.argv[1:]),
            location=None if settings is None else _location(settings),
        )


def _names(side: str) -> list[str]:
    names = [name for name in side.split(",") if name]
    if not names:
        raise InputError("a side of the gate is empty", remedy="Name a run, such as @last")
    return names


def _report(name: str) -> "Report":
    from llmprof.analysis.report import build_report
    from llmprof.store.runs import find_run

    return build_report(find_run(name))


def _end(result: "GateResult", outputs: GateOutputs) -> None:
    outputs.write(result)
    if result.exit_code:
        raise typer.Exit(result.exit_code)
