"""Documents on disk: one JSON object, its schema named inside, written whole or not at all."""

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from pydantic import ValidationError

from llmprof.errors import InputError
from llmprof.schema.measurement import Caveat
from llmprof.schema.record import Record
from llmprof.store.document_kinds import instead_of, what_it_is
from llmprof.store.key_path import KeyPath, dotted
from llmprof.store.outputs import write_atomic

MAX_FILE_BYTES: Final = 2**29
_SCHEMA: Final = re.compile(r"llmprof\.([a-z-]+)/([0-9]{1,6})")
_RAW_CONTROL: Final = re.compile(rb"\x7f|\xc2[\x80-\x9f]")
"""Those that JSON lets stand as they are."""
_CONTROL: Final = re.compile(
    rb"(?<!\\)((?:\\\\)*)\\([bf]|u00[01][0-9a-fA-F]|u007f|u00[89][0-9a-fA-F])"
)
"""The escapes of the others but line feed, return and tab; a backslash may itself be escaped."""
_MOST_NAMED: Final = 5
STDIN: Final = Path("-")
"""Stands for standard input wherever a document is read."""
_WRITE_AGAIN: Final = "It was cut off or damaged: copy or write it again"
_OWN_FILES: Final = "Saved runs lie in .llmprof/runs, and 'llmprof ls' lists them"

AnyRecord = TypeVar("AnyRecord", bound=Record)


def write_document(path: Path, document: Record) -> None:
    """Write one document as compact JSON.

    Raises:
        InputError: the file cannot be written.
    """
    write_atomic(path, document.model_dump_json(by_alias=True).encode() + b"\n")


def read_document(path: Path, kind: type[AnyRecord]) -> tuple[AnyRecord, tuple[Caveat, ...]]:
    """Read a document of one kind, and the caveats about how it was read; `-` is standard input.

    Keys of a newer minor version are ignored, and named in a caveat.

    Raises:
        InputError: missing, truncated, not JSON, not finite, of another kind or of a newer version.
    """
    data = _escaped(_read_stdin() if path == STDIN else _read_bytes(path))
    path = Path("standard input") if path == STDIN else path
    tree = _parse(path, data)
    _check_schema(path, tree, expected=kind.model_fields["schema_"].default)
    document = _validated(path, kind, data, tree)
    return document, _unknown_key_caveats(path, tree, document)


def _read_bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder, not a file", remedy="Name a file in it")
        if not path.is_file():
            reason = "is not a file" if path.exists() else "does not exist"
            raise InputError(f"{path} {reason}")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{path} is larger than 512 MiB, which no document of llmprof is")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _read_stdin() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError("'-' reads standard input, and nothing is piped into it")
    try:
        data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read standard input: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise InputError(
            "standard input holds more than 512 MiB, which no document of llmprof does"
        )
    return data


def _parse(path: Path, data: bytes) -> dict[str, Any]:
    try:
        tree = json.loads(data, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        what = "is empty" if not data.strip() else f"is truncated or no JSON (line {error.lineno})"
        raise InputError(f"{path} {what}", remedy=_WRITE_AGAIN) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}", remedy=_WRITE_AGAIN) from error
    if not isinstance(tree, dict):
        raise InputError(
            f"{path} is no llmprof document: expected a JSON object", remedy=_OWN_FILES
        )
    return tree


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _escaped(data: bytes) -> bytes:
    """Spell out control characters in texts, which a terminal would obey."""
    return _CONTROL.sub(rb"\1\\\\\2", _RAW_CONTROL.sub(_spelled, data))


def _spelled(match: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(match[0].decode())


def _check_schema(path: Path, tree: dict[str, Any], *, expected: str) -> None:
    found = tree.get("schema")
    match = _SCHEMA.fullmatch(found) if isinstance(found, str) else None
    if match is None:
        raise InputError(
            f"{path} is no llmprof document: its key 'schema' should be '{expected}'",
            remedy=_OWN_FILES,
        )
    name, major = match[1], int(match[2])
    wanted = _SCHEMA.fullmatch(expected)
    if wanted is None or name != wanted[1]:
        raise InputError(
            f"{path} holds {found} ({what_it_is(name)}), expected {expected}",
            remedy=instead_of(name, wanted=wanted[1] if wanted else ""),
        )
    if major > int(wanted[2]):
        raise InputError(
            f"{path} holds {found}, and this llmprof reads up to {expected}",
            remedy="Upgrade llmprof",
        )
    if major < int(wanted[2]):
        raise InputError(
            f"{path} holds {found}, which this llmprof no longer reads",
            remedy="Read it with the version that wrote it, or measure again",
        )


def _validated(path: Path, kind: type[AnyRecord], data: bytes, tree: dict[str, Any]) -> AnyRecord:
    try:
        try:
            return kind.model_validate_json(data, strict=True)
        except ValidationError as error:
            surplus = [one["loc"] for one in error.errors() if one["type"] == "extra_forbidden"]
            if len(surplus) < error.error_count():
                raise
            # Settings forbid unknown keys in a user's file; in a document of a newer version they
            # are ignored like all others.
            known = json.dumps(_without(tree, surplus))
            return kind.model_validate_json(known, strict=True)
    except ValidationError as error:
        raise _damaged(path, error) from error


def _without(tree: dict[str, Any], paths: list[KeyPath]) -> dict[str, Any]:
    pruned = copy.deepcopy(tree)
    for *parents, key in paths:
        node: Any = pruned
        for parent in parents:
            node = node[parent]
        del node[key]
    return pruned


def _damaged(path: Path, error: ValidationError) -> InputError:
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    return InputError(
        f"{path} is damaged, or of a newer llmprof: {dotted(first['loc'])}: {message}",
        remedy="Upgrade llmprof, or write the file again",
    )


def _unknown_key_caveats(path: Path, tree: dict[str, Any], document: Record) -> tuple[Caveat, ...]:
    unknown = _unknown_keys(tree, document.model_dump(mode="json", by_alias=True), "")
    if not unknown:
        return ()
    named = ", ".join(unknown[:_MOST_NAMED])
    more = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
    return (
        Caveat(
            code="unknown-keys",
            message=f"{path.name} holds keys that this llmprof does not know: {named}{more}",
            remedy="Upgrade llmprof to see what they say",
        ),
    )


def _unknown_keys(tree: object, known: object, place: str) -> list[str]:
    """Return the dotted names of keys that were dropped on reading; those in a list once.

    A key that holds null says nothing that could be lost.
    """
    if isinstance(tree, list) and isinstance(known, list):
        names = (
            name
            for item, known_item in zip(tree, known, strict=True)
            for name in _unknown_keys(item, known_item, f"{place}[]")
        )
        return list(dict.fromkeys(names))
    if not isinstance(tree, dict) or not isinstance(known, dict):
        return []
    told = {key: value for key, value in tree.items() if value is not None}
    unknown = [f"{place}.{key}".removeprefix(".") for key in told if key not in known]
    for key, value in told.items():
        if key in known:
            unknown += _unknown_keys(value, known[key], f"{place}.{key}".removeprefix("."))
    return unknown
