"""The commands, and how they are read off the command line."""

import os
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from llmprof import __version__
from llmprof.cli.ceilings import ceilings
from llmprof.cli.compare import compare
from llmprof.cli.doctor import doctor
from llmprof.cli.gate import app as gate
from llmprof.cli.generate import generate
from llmprof.cli.inspect import inspect
from llmprof.cli.ls import ls
from llmprof.cli.ncu import ncu
from llmprof.cli.plan import plan
from llmprof.cli.predict import predict
from llmprof.cli.quality import quality
from llmprof.cli.report import report
from llmprof.cli.run import run
from llmprof.cli.schema import schema
from llmprof.cli.sweep import sweep
from llmprof.errors import InputError

EXIT_FINE: Final = 0
EXIT_CODES: Final = (
    "Exit codes: 0 fine, 1 regression, 2 bad input, 3 inconclusive, 4 not comparable, "
    "5 unstable machine, 6 measurement failed, 7 capability missing, 70 bug, 130 interrupted."
)
_COMPLETION_VARIABLE: Final = "_LLMPROF_COMPLETE"
# typer carries its own click or uses the installed one, by version: this is UsageError of either.
_USAGE_ERROR: Final[type[BaseException]] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="llmprof",
    help="Profiler and roofline analyser for language-model inference: where each millisecond goes.",
    epilog=EXIT_CODES,
    pretty_exceptions_enable=False,
)
for command in (
    run,
    sweep,
    compare,
    predict,
    plan,
    inspect,
    generate,
    ceilings,
    quality,
    report,
    ncu,
    doctor,
    ls,
    schema,
):
    app.command()(command)
app.add_typer(gate, name="gate")


_EXAMPLES: Final = {
    "--confirm": "--confirm weights.quantization=int8",
    "--set": "--set weights.dtype=bf16",
    "--grid": "--grid workload.batch=1,4,16",
    "-o": "-o report.html",
    "--output": "--output report.html",
}
"""Values of options that are often given without one."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"llmprof {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _global_options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (LLMPROF_DEBUG=1).")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def invoke(arguments: list[str]) -> int:
    """Run one command and return the exit code that it chose.

    Raises:
        InputError: a wrong call, with where to look.
        KeyboardInterrupt: it was aborted.
    """
    program = typer.main.get_command(app)
    if _COMPLETION_VARIABLE in os.environ:
        program.main(prog_name="llmprof")
    # Not `app()`: it would turn a broken pipe into exit code 1, which means a regression here.
    try:
        with program.make_context("llmprof", arguments) as context:
            program.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort as abort:
        raise KeyboardInterrupt from abort
    except _USAGE_ERROR as error:
        raise _usage_error(error, arguments) from error
    return EXIT_FINE


def _usage_error(error: Any, arguments: Sequence[str]) -> InputError:
    context: typer.Context | None = error.ctx
    command = context.command_path if context is not None else _command_in(arguments)
    message = " ".join(error.format_message().split()).removesuffix(".")
    remedy = f"See '{command} --help'"
    example = _EXAMPLES.get(getattr(error, "option_name", ""))
    if example and message.endswith("requires an argument"):
        remedy = f"For example {example}; see '{command} --help'"
    return InputError(message, remedy=remedy)


def _command_in(arguments: Sequence[str]) -> str:
    """What was meant to run, where the error itself does not say."""
    known = {command.name for command in typer.main.get_group(app).commands.values()}
    named = [word for word in arguments[:1] if word in known]
    return " ".join(["llmprof", *named])
