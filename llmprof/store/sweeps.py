"""Saved sweeps: `.llmprof/sweeps`, one document per sweep, found again by what it measures."""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from llmprof.errors import InputError
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from llmprof.schema.sweep import Sweep
from llmprof.store.documents import read_document, write_document
from llmprof.store.outputs import check_folder
from llmprof.store.runs import check_runs_writable, find_run, run_files, runs_folder

_ID_DIGITS = 12


def sweeps_folder() -> Path:
    """Return `sweeps` beside the folder of runs."""
    return runs_folder().parent / "sweeps"


def sweep_id(config: RunConfig, fingerprint: str, files: Sequence[Path]) -> str:
    """Name a sweep by everything that changes what it measures; limits of latency do not.

    Args:
        config: base settings with the axes.
        fingerprint: of the environment.
        files: of the model and the trace; another size or date makes another sweep.
    """
    plain = config.model_dump_json(exclude={"gate": True, "sweep": {"ttft_max_s", "tpot_max_s"}})
    states = [(str(file.resolve()), *_state(file)) for file in files]
    text = repr((plain, fingerprint, states))
    return hashlib.sha256(text.encode()).hexdigest()[:_ID_DIGITS]


def _state(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    return found.st_size, found.st_mtime_ns


def save_sweep(sweep: Sweep) -> None:
    """Replace the document of a sweep, whole or not at all.

    Raises:
        InputError: it cannot be written.
    """
    write_document(_path(sweep.id), sweep)


def load_sweep(identifier: str) -> Sweep | None:
    """The saved document; None where there is none yet.

    Raises:
        InputError: it is damaged.
    """
    path = _path(identifier)
    if not path.exists():
        return None
    try:
        return read_document(path, Sweep)[0]
    except InputError as error:
        raise InputError(error.message, remedy="Give --fresh to start over") from error


@contextmanager
def sweep_lock(identifier: str) -> Iterator[None]:
    """Keep a sweep to this process; the system lets go of it however the process ends.

    Raises:
        InputError: another process measures it.
    """
    path = sweeps_folder() / f"{identifier}.lock"
    with path.open("ab") as file:
        if sys.platform != "win32":  # which has no such lock
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(
                    f"another process measures this sweep ({path} is locked)",
                    remedy="Wait for it or stop it; the same command then goes on where it was",
                ) from error
        yield


def check_sweeps_writable() -> None:
    """Make the folders of runs and sweeps, so that unwritable ones are found before measuring.

    Raises:
        InputError: one cannot be made or written into.
    """
    check_runs_writable()
    folder = sweeps_folder()
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make folder {folder}: {error.strerror}") from error
    check_folder(folder)


def finished_run_since(
    moment: datetime, settings: RunConfig, known: frozenset[str]
) -> RunRecord | None:
    """A complete run of exactly these settings that no cell knows, begun after `moment`.

    The process may have ended between the run's file and the sweep's.
    """
    earliest = moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    for file in reversed(run_files()):
        if file.name < earliest:
            return None
        if file.stem in known:
            continue
        try:
            record = find_run(str(file))
        except InputError:  # another command's file; `llmprof ls` tells about it
            continue
        if record.status == "complete" and record.settings == settings:
            return record
    return None


def _path(identifier: str) -> Path:
    return sweeps_folder() / f"{identifier}.json"
