"""Settings from a YAML file, flags and `--set`, checked against the schema, with the place of each."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from llmprof.errors import InputError
from llmprof.schema.settings import GridValue, RunConfig
from llmprof.store.document_kinds import refuse_as_model
from llmprof.store.grid import axis_values, parse_axis
from llmprof.store.key_path import KeyPath, dotted
from llmprof.store.setting_keys import is_group
from llmprof.store.settings_errors import first_error, nearest_place
from llmprof.store.yaml_tree import Value, YamlTree, parse_yaml, read_yaml, read_yaml_text

SUFFIXES: Final = (".yaml", ".yml")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_KEY: Final = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")


def is_settings_file(argument: str) -> bool:
    return argument.lower().endswith(SUFFIXES)


def load_settings(
    model_or_config: str | None,
    flags: Mapping[str, object],
    sets: Sequence[str],
    grids: Sequence[str] = (),
) -> RunConfig:
    """Merge file < flags < `--set` and `--grid`, and check the result.

    Args:
        model_or_config: a settings file where it ends in .yaml or .yml, else the model.
        flags: dotted key -> value of a flag of the command; None where it was not given.
        sets: `key=value` texts, the values in YAML.
        grids: `key=values` texts, each an axis of a sweep.

    Raises:
        InputError: one line with the place (file:line, or the option), the key and what is valid.
    """
    layers = _Layers()
    if model_or_config is not None and is_settings_file(model_or_config):
        layers.add_file(Path(model_or_config))
    elif model_or_config is not None:
        refuse_as_model(model_or_config)
        layers.set(("model",), model_or_config, place="MODEL")
    for key, value in flags.items():
        if value is not None:
            layers.set(tuple(key.split(".")), _plain(value), place="command line")
    for text in sets:
        layers.add_set(text)
    for text in grids:
        layers.add_axis(text)
    return layers.validated()


def settings_with_values(
    config: RunConfig, changes: Mapping[str, GridValue], *, place: str
) -> RunConfig:
    """`config` with other values for some dotted keys, checked like a file; `place` set them.

    Raises:
        InputError: one line with the place, the key and what is valid.
    """
    layers = _Layers(tree=config.model_dump(mode="json"))
    for key, value in changes.items():
        layers.set(tuple(key.split(".")), value, place=place)
    return layers.validated()


def changed_settings(base: RunConfig, sets: Sequence[str], *, option: str = "--set") -> RunConfig:
    """Settings of a run with `key=value` texts over them; `option` gave them.

    Raises:
        InputError: as `load_settings`.
    """
    layers = _Layers(tree=base.model_dump(mode="json"))
    for text in sets:
        layers.add_set(text, option=option)
    return layers.validated()


def load_settings_text(text: str, name: str, sets: Sequence[str]) -> RunConfig:
    """As `load_settings`, from the text of a settings file; `name` stands before its lines."""
    layers = _Layers()
    layers.add_parsed(read_yaml_text(text, name), name)
    for one in sets:
        layers.add_set(one)
    return layers.validated()


def setting_line(path: Path, *keys: str) -> int:
    """Line of the first of these dotted keys that the file sets; 1 where it sets none."""
    lines = read_yaml(path).lines
    return next((lines[key] for key in map(_path, keys) if key in lines), 1)


def _path(key: str) -> KeyPath:
    return tuple(key.split("."))


@dataclass(slots=True)
class _Layers:
    """Settings so far, and where each came from; a later layer replaces an earlier one."""

    tree: dict[str, Value] = field(default_factory=dict)
    places: dict[KeyPath, str] = field(default_factory=dict)

    def add_file(self, path: Path) -> None:
        self.add_parsed(read_yaml(path), str(path))

    def add_parsed(self, parsed: YamlTree, path: str) -> None:
        if not isinstance(parsed.value, dict):
            found = "is empty" if parsed.value is None else "is not a mapping of keys to values"
            raise InputError(f"{path}: {found}", remedy="Write at least 'model: NAME'")
        # A group whose keys are all commented out reads as null.
        self.tree = {
            key: {} if value is None and is_group(key) else value
            for key, value in parsed.value.items()
        }
        self.places = {key: f"{path}:{line}" for key, line in parsed.lines.items()}

    def add_set(self, text: str, *, option: str = "--set") -> None:
        key, equals, value = text.partition("=")
        place = f"{option} {text}"
        if not equals or not _KEY.fullmatch(key):
            raise InputError(f"{place}: expected KEY=VALUE", remedy="For example workload.batch=4")
        self.merge(tuple(key.split(".")), parse_yaml(value, where=place).value, place=place)

    def add_axis(self, text: str) -> None:
        """An axis on the command line replaces the file's of the same key."""
        key, values = parse_axis(text)
        path, place = ("sweep", "grid", key), f"--grid {text}"
        if self.places.get(path, "").startswith("--grid"):
            raise InputError(f"{place}: {key} is given twice", remedy="Put all values in one")
        self.set(path, list(values), place=place)

    def _expand_axes(self) -> None:
        """The short forms of a file's axes become lists of values."""
        sweep = self.tree.get("sweep")
        grid = sweep.get("grid") if isinstance(sweep, dict) else None
        if not isinstance(grid, dict):
            return
        for key, value in grid.items():
            place = nearest_place(("sweep", "grid", key), self.places).removesuffix(": ")
            grid[key] = list(axis_values(key, value, place=place))

    def merge(self, path: tuple[str, ...], value: Value, *, place: str) -> None:
        """Set each key of a mapping on its own: what it does not name stays as it was."""
        if not isinstance(value, dict) or not value:
            self.set(path, value, place=place)
            return
        for key, inner in value.items():
            self.merge((*path, key), inner, place=place)

    def set(self, path: tuple[str, ...], value: Value, *, place: str) -> None:
        node = self.tree
        for depth, part in enumerate(path[:-1], start=1):
            inner = node.setdefault(part, {})
            if not isinstance(inner, dict):
                key = path[:depth]
                raise InputError(
                    f"{self.places.get(key, place)}: {dotted(key)} is no group of keys",
                    remedy=f"It stands in the way of {dotted(path)}, given by {place}",
                )
            node = inner
        node[path[-1]] = value
        self._forget_below(path)
        self.places[path] = place

    def _forget_below(self, path: KeyPath) -> None:
        size = len(path)
        for key in [key for key in self.places if key[:size] == path]:
            del self.places[key]

    def _refuse_unprintable(self) -> None:
        """Bytes that are no text, and control characters, which would end up in a terminal."""
        for path, text in _texts(self.tree):
            if _UNPRINTABLE.search(text):
                raise InputError(
                    f"{nearest_place(path, self.places)}{dotted(path)} holds a control character, or bytes that are no UTF-8"
                )

    def validated(self) -> RunConfig:
        self._refuse_unprintable()
        self._expand_axes()
        try:
            # JSON is validated strictly: a list may become a tuple and a text an enum, but neither
            # `true` nor "1" becomes the number 1.
            return RunConfig.model_validate_json(json.dumps(self.tree), strict=True)
        except ValidationError as error:
            raise first_error(error, self.places) from error


def _texts(value: Value, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Every text in nested data, keys included, with its place."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key), key
            yield from _texts(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, (*path, index))


def _plain(value: object) -> Value:
    """Return a flag's value as it would stand in a file."""
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a flag may not hold {type(value).__name__}")
