"""Numbers from files that strangers wrote: typed, bounded, and named when they are wrong."""

from collections.abc import Mapping
from typing import NoReturn

from llmprof.architectures.limits import Limits
from llmprof.errors import InputError


class Fields:
    """Checked access to a JSON object or to GGUF metadata.

    A field that is absent and one that is null are the same: not there.

    Raises:
        InputError: from every accessor, naming the field, the file and the value.
    """

    __slots__ = ("_values", "where")

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        self._values = values
        self.where = where

    def has(self, key: str) -> bool:
        return self._values.get(key) is not None

    def states(self, key: str) -> bool:
        """Whether the field is there, null included."""
        return key in self._values

    def raw(self, key: str) -> object:
        return self._values.get(key)

    def integer(self, key: str, limits: Limits) -> int:
        value = self._present(key)
        if isinstance(value, bool) or not isinstance(value, int) or value not in limits:
            self.wrong(key, f"expected a whole number {limits}")
        return value

    def number(self, key: str, limits: Limits) -> float:
        value = self._present(key)
        # The bounds come before float(): a JSON integer may be too long for one.
        if isinstance(value, bool) or not isinstance(value, int | float) or value not in limits:
            self.wrong(key, f"expected a number {limits}")
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        if not self.has(key):
            return default
        value = self._values[key]
        if not isinstance(value, bool):
            self.wrong(key, "expected true or false")
        return value

    def text(self, key: str) -> str:
        value = self._present(key)
        if not isinstance(value, str) or not value:
            self.wrong(key, "expected a text")
        return value

    def mapping(self, key: str) -> Mapping[str, object]:
        value = self._present(key)
        if not isinstance(value, Mapping):
            self.wrong(key, "expected an object")
        return value

    def nested(self, key: str) -> "Fields":
        return Fields(self.mapping(key), f"{self.where}, {key}")

    def under_usual_names(
        self, renamed: Mapping[str, str], defaults: Mapping[str, object], model_type: str
    ) -> "Fields":
        """The same object with a family's own names replaced and its defaults filled in."""
        values = dict(self._values)
        for own, usual in renamed.items():
            if values.get(usual) is None and own in values:
                values[usual] = values[own]
        missing = {key: value for key, value in defaults.items() if key not in values}
        return Fields({"model_type": model_type} | missing | values, self.where)

    def wrong(self, key: str, expected: str) -> NoReturn:
        raise InputError(f"{self.where}: '{key}' is {_shown(self._values.get(key))}, {expected}")

    def _present(self, key: str) -> object:
        if not self.has(key):
            raise InputError(f"{self.where}: the field '{key}' is missing")
        return self._values[key]


def _shown(value: object) -> str:
    if isinstance(value, int) and abs(value) >= 10**30:
        return "an integer of more than 30 digits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
