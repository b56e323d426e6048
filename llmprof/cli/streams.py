"""The two streams: results on stdout, progress on stderr."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pydantic import BaseModel
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from llmprof.renderers.printable import printable
from llmprof.store.progress import NullProgress, Progress

PREFIX: Final = "llmprof: "
MIN_WIDTH: Final = 20
USUAL_WIDTH: Final = 80


def result_console() -> Console:
    """Where results go. rich honours NO_COLOR, and drops colour where stdout is no terminal.

    A width that holds no table (COLUMNS=0 in some containers and editors) is not believed.
    """
    console = Console(highlight=False)
    if console.width < MIN_WIDTH:
        console.width = USUAL_WIDTH
    return console


def progress_console() -> Console:
    return Console(stderr=True, highlight=False)


def print_json(document: BaseModel) -> None:
    """Write exactly one JSON document to stdout."""
    sys.stdout.write(document.model_dump_json(by_alias=True, indent=2) + "\n")


@contextmanager
def progress_on_stderr(*, quiet: bool) -> Iterator[Progress]:
    """Report progress until the block ends: a bar on a terminal, one line per event elsewhere."""
    console = progress_console()
    if quiet:
        yield NullProgress()
    elif console.is_terminal:
        with _bar(console) as bar:
            yield BarProgress(bar)
    else:
        yield LineProgress(console)


def _bar(console: Console) -> RichProgress:
    # Without a refresh thread: nothing may wake up and repaint while a step is being timed.
    return RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
    )


class BarProgress:
    """One bar per stage on a terminal, repainted only when something has happened."""

    def __init__(self, bar: RichProgress) -> None:
        self.bar = bar
        self._tasks: dict[str, TaskID] = {}

    def update(self, stage: str, done: int, total: int) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self.bar.add_task(stage, total=total)
        self.bar.update(self._tasks[stage], completed=done, total=total, refresh=True)

    def note(self, text: str) -> None:
        self.bar.console.print(f"{PREFIX}{printable(text)}", markup=False, soft_wrap=True)


class LineProgress:
    """One plain line per event, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def update(self, stage: str, done: int, total: int) -> None:
        self.note(f"{stage} {done}/{total}")

    def note(self, text: str) -> None:
        self._console.print(f"{PREFIX}{printable(text)}", markup=False, soft_wrap=True)
