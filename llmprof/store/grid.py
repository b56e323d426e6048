"""Axes of a sweep as people write them: `workload.batch=1,4,16` and `workload.prompt_tokens=512-32768*2`."""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Final

from llmprof.errors import InputError
from llmprof.schema.settings import GridValue
from llmprof.store.setting_keys import all_keys, is_group, nearest_keys
from llmprof.store.yaml_tree import Value, parse_yaml

MAX_VALUES: Final = 1000
"""Of one axis: more is a slip of the keyboard."""
_RANGE: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})(?:([+*])([0-9]{1,18}))?")
_EXAMPLE: Final = (
    "For example --grid workload.batch=1,4,16 or --grid workload.prompt_tokens=512-8192*2"
)
_NOT_SWEPT: Final = ("gate", "sweep")


def parse_axis(text: str) -> tuple[str, tuple[GridValue, ...]]:
    """Read `KEY=VALUES` from the command line.

    Raises:
        InputError: one line with what is wrong and an example.
    """
    key, equals, values = text.partition("=")
    place = f"--grid {text}"
    if not equals or not key or not values.strip():
        raise InputError(f"{place}: expected KEY=VALUES", remedy=_EXAMPLE)
    return key, axis_values(key, values, place=place)


def axis_values(key: str, value: Value, *, place: str) -> tuple[GridValue, ...]:
    """The values of one axis, from a text in the short form, a list, or a single value.

    Raises:
        InputError: an unknown key, an empty range, a value that is given twice, or too many.
    """
    _check_key(key, place)
    values = tuple(_values(value, place))
    if not values:
        raise InputError(f"{place}: {key} has no value", remedy=_EXAMPLE)
    if len(values) > MAX_VALUES:
        raise InputError(f"{place}: {key} has more than {MAX_VALUES} values")
    for index, one in enumerate(values):
        # `True == 1` for Python, and not for a person.
        if any(one == other and type(one) is type(other) for other in values[:index]):
            raise InputError(f"{place}: {key} has the value {one} twice", remedy="Name it once")
    return values


def _check_key(key: str, place: str) -> None:
    if key.partition(".")[0] in _NOT_SWEPT:
        raise InputError(f"{place}: {key} changes nothing that a sweep measures")
    if is_group(key):
        raise InputError(f"{place}: {key} is a group of keys", remedy=_EXAMPLE)
    if key not in all_keys():
        near = nearest_keys(tuple(key.split(".")))
        remedy = (
            f"Did you mean {' or '.join(near)}?" if len(near) <= 2 else f"Valid: {', '.join(near)}"
        )
        raise InputError(f"{place}: unknown key '{key}'", remedy=remedy)


def _values(value: Value, place: str) -> Iterator[GridValue]:
    if isinstance(value, dict):
        raise InputError(f"{place}: an axis is a list of values, not a mapping")
    if isinstance(value, list):
        for one in value:
            if isinstance(one, list | dict):
                raise InputError(f"{place}: a value of an axis is a number, a word or null")
            yield one
    elif isinstance(value, str):
        for item in value.split(","):
            yield from _item(item.strip(), place)
    else:
        yield value


def _item(text: str, place: str) -> Iterator[GridValue]:
    """One number or word, or a range of whole numbers with both ends."""
    match = _RANGE.fullmatch(text)
    if match is None:
        yield _scalar(text, place)
        return
    first, last = int(match[1]), int(match[2])
    step, by = match[3] or "+", int(match[4] or 1)
    if first > last:
        raise InputError(f"{place}: the range {text} is empty: {first} is more than {last}")
    if by < (2 if step == "*" else 1) or (step == "*" and first == 0):
        raise InputError(f"{place}: the range {text} never ends", remedy=_EXAMPLE)
    for count, number in enumerate(takewhile(lambda one: one <= last, _growing(first, step, by))):
        if count > MAX_VALUES:
            raise InputError(f"{place}: the range {text} has more than {MAX_VALUES} values")
        yield number


def _growing(first: int, step: str, by: int) -> Iterator[int]:
    while True:
        yield first
        first = first * by if step == "*" else first + by


def _scalar(text: str, place: str) -> GridValue:
    if not text:
        raise InputError(f"{place}: a value is missing between two commas", remedy=_EXAMPLE)
    value = parse_yaml(text, where=place).value
    if isinstance(value, list | dict):
        raise InputError(f"{place}: a value of an axis is a number, a word or null")
    return value
