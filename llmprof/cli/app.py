"""The one place where an error becomes a line and an exit code.

It imports almost nothing, so that an interrupt while the commands are imported is caught as well.
"""

import errno
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from llmprof.cli.standard_streams import (
    discard_output,
    open_standard_streams,
    silence_other_ranks,
    tolerate_encoding,
)
from llmprof.errors import InputError, LlmprofError
from llmprof.renderers.printable import printable

EXIT_FINE: Final = 0
EXIT_BUG: Final = 70
EXIT_INTERRUPTED: Final = 130
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        open_standard_streams()
        silence_other_ranks()
        code = execute(sys.argv[1:])
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # Nothing is left to keep: an interrupt while Python ends may just end it.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:  # before the first word was read, or while the first one was told
        code = EXIT_INTERRUPTED
    sys.exit(code)


def execute(arguments: Sequence[str]) -> int:
    """Run one command, say on one line of stderr what went wrong, and return the exit code."""
    debug, arguments = _take_debug(arguments)
    tolerate_encoding()
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
    except SystemExit as end:
        # rich ends the process with 1 when stdout's reader has gone.
        if isinstance(end.__context__, BrokenPipeError):
            return _reader_left()
        raise
    except BrokenPipeError:  # of stdout: stderr does not raise
        return _reader_left()
    except BaseException as error:  # noqa: BLE001 (the last line of defence; panics of Rust are no Exception)
        if debug:
            _print_traceback()
        line, code = _describe(error)
        sys.stderr.write(f"llmprof: {printable(line)}\n")
        _flush_or_discard()
    return code


def _invoke(arguments: list[str]) -> int:
    from llmprof.cli.program import invoke

    return invoke(arguments)


def _print_traceback() -> None:
    import traceback

    traceback.print_exc()


def _describe(error: BaseException) -> tuple[str, int]:
    """Return one line for a person, and the exit code."""
    if isinstance(error, LlmprofError):
        return f"error: {error.line()}", error.exit_code
    text = " ".join(str(error).split())
    if isinstance(error, KeyboardInterrupt):
        return f"interrupted: {text}" if text else "interrupted", EXIT_INTERRUPTED
    if isinstance(error, OSError) and error.errno in _DISK_FULL:
        place = error.filename or "stdout"
        return f"error: cannot write to {place}: {error.strerror}", InputError.exit_code
    name = type(error).__name__
    problem = f"{name}: {text}" if text else name
    return f"internal error: {problem}. Run it again with --debug to see where", EXIT_BUG


def _take_debug(arguments: Sequence[str]) -> tuple[bool, list[str]]:
    """Find `--debug` wherever it stands: it is added to the end of a line that has just failed."""
    rest = list(arguments)
    end = rest.index("--") if "--" in rest else len(rest)
    wanted = os.environ.get("LLMPROF_DEBUG", "0") not in ("", "0")
    if "--debug" in rest[:end]:
        wanted = True
        rest.remove("--debug")
    return wanted, rest


def _reader_left() -> int:
    """Keep quiet about a closed pipe: `llmprof ls | head` is no failure."""
    discard_output()
    return EXIT_FINE


def _flush_or_discard() -> None:
    """Leave nothing that Python would fail to write when it ends, with an exit code of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()
