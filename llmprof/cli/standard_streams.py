"""stdout and stderr of the process: there, tolerant, and stderr never a reason to fail."""

import codecs
import io
import os
import sys
from pathlib import Path
from typing import Final

_SPELLED: Final = {"µ": "u", "→": "->", "·": "|", "…": "...", "×": "x", "≤": "<=", "≥": ">="}
"""Of characters that stand for something; without its prefix a unit is another one."""


def open_standard_streams() -> None:
    """Make sure that both streams can be written to, whatever the caller has closed.

    A closed one goes nowhere. What stderr cannot take is dropped: progress is no result, and a
    reader that leaves must not end a measurement.
    """
    _occupy_closed_descriptors()
    if sys.stdout is None:
        sys.stdout = _nowhere()
    if sys.stderr is None:
        sys.stderr = _nowhere()
    elif isinstance(sys.stderr, io.TextIOWrapper):
        old = sys.stderr
        sys.stderr = _Dropping(
            old.buffer, encoding=old.encoding, errors=old.errors, line_buffering=True
        )


def silence_other_ranks() -> None:
    """Of the processes that torchrun started together the first one speaks, for all of them."""
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK", "0") != "0":
        sys.stdout.flush()
        sys.stderr.flush()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.close(nowhere)


def tolerate_encoding() -> None:
    """Spell out a character that a terminal's encoding lacks, or print `?`, instead of failing."""
    codecs.register_error("llmprof.spelled", _spelled)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="llmprof.spelled")


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """As `codecs.register_error` calls it: the replacement, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_SPELLED.get(char, "?") for char in lacking), error.end


def discard_output() -> None:
    """Send what is still to come on stdout nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _occupy_closed_descriptors() -> None:
    """A file that is opened next must not become stdin, stdout or stderr of libraries."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _nowhere() -> io.TextIOWrapper:
    return Path(os.devnull).open("w", encoding="utf-8")


class _Dropping(io.TextIOWrapper):
    """A text stream that drops what it cannot write."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            return
