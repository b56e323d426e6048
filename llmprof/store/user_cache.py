"""Small files that save a user's time and may vanish: measured ceilings, for example.

A cache that cannot be read or written is no error: the work is done again.
"""

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from llmprof.errors import InputError
from llmprof.store.outputs import write_atomic

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


def cache_folder() -> Path | None:
    """Return LLMPROF_CACHE_DIR, else llmprof in XDG_CACHE_HOME or ~/.cache; None without a home."""
    if own := os.environ.get("LLMPROF_CACHE_DIR"):
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME", "")
    if Path(shared).is_absolute():  # the XDG base directory specification: ignore relative paths
        return Path(shared) / "llmprof"
    try:
        return Path.home() / ".cache" / "llmprof"
    except RuntimeError:
        return None


def read_cached(kind: str, key: str) -> bytes | None:
    """Return what was cached under `kind` and `key`, or None."""
    if (path := _path(kind, key)) is None:
        return None
    try:
        return path.read_bytes()
    except OSError:
        return None


def write_cached(kind: str, key: str, data: bytes) -> None:
    """Cache `data` if the folder lets us."""
    if (path := _path(kind, key)) is None:
        return
    with suppress(OSError, InputError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)


def _path(kind: str, key: str) -> Path | None:
    folder = cache_folder()
    return folder and folder / _file_name(kind) / _file_name(key)


def _file_name(text: str) -> str:
    """Return `text` where it is a plain file name, else its hash."""
    return text if _PLAIN.fullmatch(text) else hashlib.sha256(text.encode()).hexdigest()
