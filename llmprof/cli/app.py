"""The commands, and the one place where an error becomes a line and an exit code."""

import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from llmprof import __version__
from llmprof.cli.ceilings import ceilings
from llmprof.cli.doctor import doctor
from llmprof.cli.generate import generate
from llmprof.cli.inspect import inspect
from llmprof.cli.ls import ls
from llmprof.cli.report import report
from llmprof.cli.run import run
from llmprof.cli.schema import schema
from llmprof.errors import InputError, LlmprofError

EXIT_FINE: Final = 0
EXIT_BUG: Final = 70
EXIT_INTERRUPTED: Final = 130

EXIT_CODES: Final = (
    "Exit codes: 0 fine, 1 regression, 2 bad input, 3 inconclusive, 4 not comparable, "
    "5 unstable machine, 6 measurement failed, 7 capability missing, 70 bug, 130 interrupted."
)
_COMPLETION_VARIABLE: Final = "_LLMPROF_COMPLETE"
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
# typer carries its own click or uses the installed one, by version: this is UsageError of either.
_USAGE_ERROR: Final[type[BaseException]] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="llmprof",
    help="Profiler and roofline analyser for language-model inference: where each millisecond goes.",
    epilog=EXIT_CODES,
    pretty_exceptions_enable=False,
)
for command in (run, inspect, generate, ceilings, report, doctor, ls, schema):
    app.command()(command)


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


def main() -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(execute(sys.argv[1:]))


def execute(arguments: Sequence[str]) -> int:
    """Run one command, say on one line of stderr what went wrong, and return the exit code."""
    debug, arguments = _take_debug(arguments)
    _tolerate_encoding()
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
    except SystemExit as end:
        # rich ends the process with 1 when stdout's reader has gone.
        if isinstance(end.__context__, BrokenPipeError):
            return _reader_left()
        raise
    except BrokenPipeError:
        return _reader_left()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (the last line of defence)
        if debug:
            traceback.print_exc()
        line, code = _describe(error)
        sys.stderr.write(f"llmprof: {_printable(line)}\n")
        _flush_or_discard()
    return code


def _invoke(arguments: list[str]) -> int:
    program = typer.main.get_command(app)
    if _COMPLETION_VARIABLE in os.environ:
        program.main(prog_name="llmprof")
    # Not `app()`: it would turn a broken pipe into exit code 1, which means a regression here.
    try:
        with program.make_context("llmprof", arguments) as context:
            program.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    return EXIT_FINE


def _describe(error: BaseException) -> tuple[str, int]:
    """Return one line for a person, and the exit code."""
    if isinstance(error, LlmprofError):
        return f"error: {error.line()}", error.exit_code
    if isinstance(error, _USAGE_ERROR):
        return f"error: {_usage_line(error)}", InputError.exit_code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "interrupted", EXIT_INTERRUPTED
    if isinstance(error, OSError) and error.errno in _DISK_FULL:
        place = error.filename or "stdout"
        return f"error: cannot write to {place}: {error.strerror}", InputError.exit_code
    name = type(error).__name__
    text = " ".join(str(error).split())
    problem = f"{name}: {text}" if text else name
    return f"internal error: {problem}. Run it again with --debug to see where", EXIT_BUG


def _usage_line(error: Any) -> str:
    """Return the message of a usage error and the help that explains it."""
    context: typer.Context | None = error.ctx
    command = context.command_path if context is not None else "llmprof"
    message = " ".join(error.format_message().split()).removesuffix(".")
    return f"{message}. See '{command} --help'"


def _printable(line: str) -> str:
    """Escape what would move a terminal's cursor: names of files and models may hold anything."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in line
    )


def _take_debug(arguments: Sequence[str]) -> tuple[bool, list[str]]:
    """Find `--debug` wherever it stands: it is added to the end of a line that has just failed."""
    rest = list(arguments)
    end = rest.index("--") if "--" in rest else len(rest)
    wanted = os.environ.get("LLMPROF_DEBUG", "0") not in ("", "0")
    if "--debug" in rest[:end]:
        wanted = True
        rest.remove("--debug")
    return wanted, rest


def _tolerate_encoding() -> None:
    """Print `?` where a terminal's encoding lacks a character, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _reader_left() -> int:
    """Keep quiet about a closed pipe: `llmprof ls | head` is no failure."""
    _discard_output()
    return EXIT_FINE


def _flush_or_discard() -> None:
    """Leave nothing that Python would fail to write when it ends, with an exit code of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
