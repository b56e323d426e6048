"""Files that a command writes for its user: checked before the work, written whole or not at all."""

import os
import secrets
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from llmprof.errors import InputError


def check_writable(path: Path, *, force: bool) -> None:
    """Make sure that `path` can be written, before minutes are spent on measuring.

    Raises:
        InputError: it is a folder, exists without `force`, or its folder is missing or read-only.
    """
    try:
        _check_place(path, force=force)
    except OSError as error:  # a name that is too long, or a folder that may not be searched
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def check_distinct(paths: Sequence[Path]) -> None:
    """Make sure that no file is written twice: the first document in it would be lost.

    Raises:
        InputError: two of them are one file. A device or a pipe takes several.
    """
    seen: set[str] = set()
    for path in paths:
        place = os.path.realpath(path)
        if place in seen and not _is_stream(path):
            raise InputError(
                f"{path} is given for two outputs", remedy="Give each of them a file of its own"
            )
        seen.add(place)


def _check_place(path: Path, *, force: bool) -> None:
    # Newer versions of Python take a name that is too long for one that does not exist: ask.
    with suppress(FileNotFoundError, NotADirectoryError):
        path.lstat()
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder", remedy="Name a file in it")
    if _is_stream(path):
        return
    if path.exists() and not force:
        raise InputError(f"{path} exists", remedy="Give --force to overwrite it")
    if not path.parent.is_dir():
        raise InputError(
            f"cannot write {path}: folder {path.parent} does not exist", remedy="Create it"
        )
    check_folder(path.parent)


def check_folder(folder: Path) -> None:
    """Make sure that files can be made in `folder`.

    Raises:
        InputError: they cannot.
    """
    try:
        # Permission bits do not tell about read-only mounts, quotas or root: try.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"cannot write into folder {folder}: {error.strerror}") from error


def write_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data`; a crash or a full disk leaves the old file as it was.

    Raises:
        InputError: it could not be written.
    """
    try:
        if _is_stream(path):
            path.write_bytes(data)
        else:
            _replace(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def _is_stream(path: Path) -> bool:
    """Whether it is a device or a pipe, which must be written to and never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _replace(path: Path, data: bytes) -> None:
    # In the same folder, since a rename is atomic only within one file system.
    temporary = path.with_name(f".llmprof-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself last through a power cut, where the system can open a folder."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
