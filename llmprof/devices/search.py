"""A device of the datasheet table by the name that a person types."""

from difflib import SequenceMatcher
from typing import Final

from llmprof.devices.names import spelled_alike
from llmprof.devices.table import Row, rows
from llmprof.errors import InputError
from llmprof.schema.datasheet import Datasheet

_NAMED_AT_MOST: Final = 6
_NEAR: Final = 0.75


def datasheet_named(name: str) -> Datasheet:
    """The one row whose whole name it is, or the one that has all of its words: "H100 SXM".

    A word may be the beginning of a row's: SXM stands for SXM5.

    Raises:
        InputError: no row, or several.
    """
    wanted = spelled_alike(name)
    exact = [row for row in rows() if wanted in _names(row)]
    found = exact or [row for row in rows() if wanted and _has_words(row, wanted.split())]
    if len(found) == 1:
        return found[0].datasheet
    if found:
        raise InputError(
            f"'{name}' may be any of {_listed(found)}", remedy="Give one of these names"
        )
    close = _nearest(wanted)
    raise InputError(
        f"the datasheet table does not know '{name}'",
        remedy=f"Close: {_listed(close)}" if close else "Give --memory and --bandwidth instead",
    )


def _names(row: Row) -> set[str]:
    return {spelled_alike(row.datasheet.name), *row.names}


def _has_words(row: Row, words: list[str]) -> bool:
    own = spelled_alike(row.datasheet.name).split()
    return all(any(word in (one, one.rstrip("0123456789")) for one in own) for word in words)


def _nearest(wanted: str) -> list[Row]:
    """The rows whose words come nearest to the given ones: H1000 is near every H100."""
    likeness = [(_likeness(wanted.split(), row), row) for row in rows()]
    best = max(one for one, _ in likeness)
    return [row for one, row in likeness if one == best >= _NEAR]


def _likeness(words: list[str], row: Row) -> float:
    """From 0 to 1: how alike each word and the nearest one of the row are, on average."""
    own = spelled_alike(row.datasheet.name).split()
    nearest = [max(SequenceMatcher(None, word, one).ratio() for one in own) for word in words]
    return sum(nearest) / len(nearest) if nearest else 0.0


def _listed(found: list[Row]) -> str:
    names = [row.datasheet.name for row in found[:_NAMED_AT_MOST]]
    more = len(found) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
