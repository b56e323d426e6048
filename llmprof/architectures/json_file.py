"""JSON objects from files that strangers wrote."""

import json
import os
from pathlib import Path
from typing import Final

from llmprof.errors import InputError

_MAX_FILE_BYTES: Final = 64 * 2**20
_AGAIN: Final = "It was cut off or damaged: download or write it again"


def read_json_object(path: Path) -> dict[str, object]:
    """The object in a UTF-8 JSON file of at most 64 MiB.

    Raises:
        InputError: unreadable, too large, not JSON, not an object, or with a key twice.
    """
    try:
        with path.open("rb") as file:
            # A read of so many bytes allocates them all, however small the file is.
            size = os.fstat(file.fileno()).st_size
            text = file.read(min(size, _MAX_FILE_BYTES) + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if len(text) > _MAX_FILE_BYTES:
        raise InputError(f"{path} is larger than 64 MiB, too large for a JSON file of a model")
    return parse_json_object(text, str(path))


def parse_json_object(text: bytes, where: str) -> dict[str, object]:
    """The object in UTF-8 JSON text.

    Raises:
        InputError: not JSON, not an object, or with a key twice.
    """
    try:
        value = json.loads(text.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        if not text.strip():
            raise InputError(f"{where} is empty", remedy=_AGAIN) from error
        raise InputError(f"{where} is not valid JSON: {error}", remedy=_AGAIN) from error
    if not isinstance(value, dict):
        raise InputError(f"{where} holds a JSON {type(value).__name__}, expected an object")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key '{key}' appears twice")
        for text in (key, value):
            if isinstance(text, str):
                text.encode()  # half of a surrogate pair is no text: UnicodeEncodeError
        found[key] = value
    return found
