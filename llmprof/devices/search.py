"""A device of the datasheet table by the name that a person types."""

import difflib
from typing import Final

from llmprof.devices.names import spelled_alike
from llmprof.devices.table import Row, rows
from llmprof.errors import InputError
from llmprof.schema.datasheet import Datasheet

_NAMED_AT_MOST: Final = 6


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
    near = difflib.get_close_matches(wanted, [spelled_alike(r.datasheet.name) for r in rows()], n=3)
    close = [row for row in rows() if spelled_alike(row.datasheet.name) in near]
    raise InputError(
        f"the datasheet table does not know '{name}'",
        remedy=f"Close: {_listed(close)}" if close else "Give --memory and --bandwidth instead",
    )


def _names(row: Row) -> set[str]:
    return {spelled_alike(row.datasheet.name), *row.names}


def _has_words(row: Row, words: list[str]) -> bool:
    own = spelled_alike(row.datasheet.name).split()
    return all(any(word in (one, one.rstrip("0123456789")) for one in own) for word in words)


def _listed(found: list[Row]) -> str:
    names = [row.datasheet.name for row in found[:_NAMED_AT_MOST]]
    more = len(found) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
