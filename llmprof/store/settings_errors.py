"""What pydantic says about settings, as one line with the place, the key and what is valid."""

from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from llmprof import units
from llmprof.errors import InputError
from llmprof.store.key_path import KeyPath, dotted
from llmprof.store.setting_keys import nearest_keys, valid_prefix

_LONGEST_ECHO: Final = 60
_KINDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text (put it in quotes)",
    "tuple": "a list",
    "model": "a mapping of keys to values",
}
_BOUNDS: Final = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
_FORMS: Final = {"device": "auto, cpu, cuda or cuda:N"}
"""Keys that are checked by a pattern, which says little to a person."""


def first_error(error: ValidationError, places: Mapping[KeyPath, str]) -> InputError:
    """Turn the first error, unknown keys before wrong values, into an `InputError`.

    Args:
        error: from validating the whole tree of settings.
        places: key path -> `file:line` or option that set it.
    """
    details = error.errors(include_url=False)
    # A typo in a required key is also a missing one: the typo says more.
    first = min(details, key=lambda detail: detail["type"] != "extra_forbidden")
    path = valid_prefix(first["loc"])
    # A field that may hold one of several types has one error per type.
    branches = [detail for detail in details if valid_prefix(detail["loc"]) == path]
    if first["type"] == "extra_forbidden":
        return _unknown_key(first["loc"], places)
    if first["type"] == "missing":
        return _missing_key(first["loc"], places)
    if first["type"] == "value_error":
        return InputError(f"{nearest_place(path, places)}{_own_message(first)}")
    expected = " or ".join(dict.fromkeys(_expected(detail, path) for detail in branches))
    return InputError(
        f"{nearest_place(path, places)}{dotted(path)} is {_echo(first['input'])}",
        remedy=f"Expected {expected}",
    )


def _unknown_key(path: KeyPath, places: Mapping[KeyPath, str]) -> InputError:
    near = nearest_keys(path)
    remedy = f"Did you mean {' or '.join(near)}?" if len(near) <= 2 else f"Valid: {', '.join(near)}"
    return InputError(f"{nearest_place(path, places)}unknown key '{dotted(path)}'", remedy=remedy)


def _missing_key(path: KeyPath, places: Mapping[KeyPath, str]) -> InputError:
    message = f"{nearest_place(path[:-1], places)}{dotted(path)} is missing"
    remedy = "Name a model or a settings file" if path == ("model",) else None
    return InputError(message, remedy=remedy)


def nearest_place(path: KeyPath, places: Mapping[KeyPath, str]) -> str:
    """Return where the value, or the nearest thing around or in it, was set; with ': ' behind it."""
    around = (places.get(path[:length]) for length in range(len(path), -1, -1))
    inside = (place for key, place in places.items() if key[: len(path)] == path)
    nearest = next(filter(None, (*around, *inside)), None)
    return f"{nearest}: " if nearest else ""


def _expected(detail: ErrorDetails, path: KeyPath) -> str:
    kind = detail["type"]
    context = detail.get("ctx", {})
    if kind in ("enum", "literal_error"):
        return str(context["expected"])
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"{words} {units.exact(context[key])}"
    if kind == "string_pattern_mismatch":
        return _FORMS.get(dotted(path), f"text that matches {context['pattern']}")
    if kind == "string_too_short":
        return "text that is not empty"
    return _KINDS.get(kind.split("_")[0], detail["msg"])


def _own_message(detail: ErrorDetails) -> str:
    """Return what a validator of the schema said."""
    return str(detail.get("ctx", {}).get("error", detail["msg"]))


def _echo(value: object) -> str:
    """Show a value as it stands in YAML, cut to a length that leaves the line readable."""
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "a mapping"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= _LONGEST_ECHO else f"{text[:_LONGEST_ECHO]}..."
