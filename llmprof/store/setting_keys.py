"""The keys that a settings file may hold, read off the schema, and the nearest one to a typo."""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import get_args

from llmprof.schema.record import Setting
from llmprof.schema.settings import RunConfig
from llmprof.store.key_path import KeyPath


def valid_prefix(path: KeyPath) -> KeyPath:
    """Return the longest part of `path` that the schema knows.

    pydantic adds the names of union branches to the place of an error; this takes them off.
    """
    group: type[Setting] | None = RunConfig
    for length, part in enumerate(path):
        if isinstance(part, int):
            continue
        if group is None or part not in group.model_fields:
            return path[:length]
        group = _group_of(group.model_fields[part].annotation)
    return path


def nearest_keys(path: KeyPath) -> tuple[str, ...]:
    """Return the nearest valid keys to an unknown one; where none is near, those of its group.

    A key that stands in the wrong group is the nearest, then a typo in the right one.
    """
    *parents, name = (part for part in path if isinstance(part, str))
    group = ".".join(parents)
    siblings = tuple(f"{group}.{key}".removeprefix(".") for key in _keys_of(group))
    misplaced = tuple(key for key in all_keys() if _leaf(key) == name)
    return misplaced or _close(name, siblings) or _close(name, all_keys()) or siblings


def _close(name: str, keys: tuple[str, ...]) -> tuple[str, ...]:
    leaves = get_close_matches(name, {_leaf(key) for key in keys}, n=1, cutoff=0.7)
    return tuple(key for key in keys if _leaf(key) in leaves)


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


def is_group(key: str) -> bool:
    """Whether a key of the top level holds a group of keys."""
    return key in RunConfig.model_fields and bool(_group_of(RunConfig.model_fields[key].annotation))


@cache
def all_keys() -> tuple[str, ...]:
    """Every key with a value of its own, dotted, in the order of the schema."""
    return tuple(_walk(RunConfig, ""))


def _keys_of(group: str) -> tuple[str, ...]:
    model: type[Setting] = RunConfig
    for part in filter(None, group.split(".")):
        inner = (
            _group_of(model.model_fields[part].annotation) if part in model.model_fields else None
        )
        if inner is None:
            return ()
        model = inner
    return tuple(model.model_fields)


def _walk(group: type[Setting], prefix: str) -> Iterator[str]:
    for name, info in group.model_fields.items():
        if inner := _group_of(info.annotation):
            yield from _walk(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _group_of(annotation: object) -> type[Setting] | None:
    """Return the settings group that a field holds, alone or in a tuple."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Setting):
            return candidate
    return None
