"""YAML as plain data with the line of every value: the only YAML reader.

Plain scalars follow the core schema of YAML 1.2: `1e-3` is a number; `no`, `on` and `1:30` are text.
Aliases, tags, duplicate keys, non-finite numbers and deep nesting are refused: a settings file needs
none of them, and each is a way to mean something else than what a reader sees.
"""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

import yaml

from llmprof.errors import InputError
from llmprof.store.key_path import KeyPath

Scalar: TypeAlias = str | int | float | bool | None
Value: TypeAlias = "Scalar | list[Value] | dict[str, Value]"

MAX_FILE_BYTES: Final = 2**20
MAX_DEPTH: Final = 16

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS: Final = {
    text: text.lower() == "true" for text in ("true", "True", "TRUE", "false", "False", "FALSE")
}
_INT: Final = re.compile(r"[-+]?[0-9]{1,40}")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_UNTAGGED: Final = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))


@dataclass(frozen=True, slots=True)
class YamlTree:
    """A parsed document: its value, and the line (from 1) of each key or list entry in it."""

    value: Value
    lines: dict[KeyPath, int] = field(default_factory=dict)


def read_yaml(path: Path) -> YamlTree:
    """Parse a file; every fault is an `InputError` that names file and line."""
    return _parse(_read_text(path), _Source(str(path), numbered=True))


def read_yaml_text(text: str, name: str) -> YamlTree:
    """Parse the text of a file that was read elsewhere; `name` stands before its lines."""
    return _parse(text, _Source(name, numbered=True))


def parse_yaml(text: str, *, where: str) -> YamlTree:
    """Parse a single value that came from `where`, an option of the command line."""
    return _parse(text, _Source(where, numbered=False))


@dataclass(frozen=True, slots=True)
class _Source:
    """What is being parsed, and whether its lines are worth naming."""

    name: str
    numbered: bool

    def fail(self, mark: yaml.Mark | None, problem: str) -> NoReturn:
        line = f":{mark.line + 1}" if self.numbered and mark is not None else ""
        raise InputError(f"{self.name}{line}: {problem}")


def _parse(text: str, source: _Source) -> YamlTree:
    try:
        loader = _Loader(text, source)
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        problem = ", ".join(filter(None, (error.context, error.problem)))
        source.fail(error.problem_mark or error.context_mark, f"not valid YAML: {problem}")
    except yaml.reader.ReaderError as error:
        raise InputError(f"{source.name}: holds a character that YAML does not allow") from error
    builder = _Builder(source)
    value = None if node is None else builder.value(node, ())
    return YamlTree(value, builder.lines)


def _read_text(path: Path) -> str:
    try:
        if not path.is_file():
            reason = "is not a file" if path.exists() else "does not exist"
            raise InputError(f"settings file {path} {reason}")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read settings file {path}: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"{path}: larger than 1 MiB, which no settings file needs")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from error


class _Loader(yaml.SafeLoader):
    """Composes nodes only; refuses what could blow up or surprise while it does."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def __init__(self, text: str, source: _Source) -> None:
        super().__init__(text)
        self._source = source
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self.check_event(yaml.AliasEvent):
            self._refuse("aliases (*name) are not supported: write the value out")
        if self._depth > MAX_DEPTH:
            self._refuse(f"nested more than {MAX_DEPTH} levels deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def _refuse(self, problem: str) -> NoReturn:
        self._source.fail(self.current_event.start_mark, problem)


class _Builder:
    """Turns nodes into plain data and remembers their lines."""

    def __init__(self, source: _Source) -> None:
        self._source = source
        self.lines: dict[KeyPath, int] = {}

    def value(self, node: yaml.Node, path: KeyPath) -> Value:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if node.tag not in _UNTAGGED:
            self._source.fail(node.start_mark, f"tag '{node.tag}' is not supported")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)  # YAML has no fourth kind
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Value]:
        mapping: dict[str, Value] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key_node, yaml.ScalarNode) or key == "<<":
                self._source.fail(key_node.start_mark, "a key must be plain text")
            if key in mapping:
                self._source.fail(key_node.start_mark, f"key '{key}' is given twice")
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            mapping[key] = self.value(value_node, (*path, key))
        return mapping

    def _scalar(self, node: yaml.ScalarNode) -> Scalar:
        text: str = node.value
        quoted = node.style is not None
        if quoted or text in _NULLS:
            return text if quoted else None
        if text in _BOOLS:
            return _BOOLS[text]
        if _INT.fullmatch(text):
            return int(text)
        if _NOT_FINITE.fullmatch(text):
            self._source.fail(node.start_mark, f"{text} is not a finite number")
        if _FLOAT.fullmatch(text):
            number = float(text)
            if not math.isfinite(number):
                self._source.fail(node.start_mark, f"{text} is too large for a number")
            return number
        return text
