"""Names of what a reader can point at or hide in a figure, carried by the gids of matplotlib."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from matplotlib.artist import Artist

_PREFIX: Final = "layer."


def layer_gid(layer: str, key: str) -> str:
    """Of the artist `key`, unique on its page, in a layer that can be hidden; "" is in none."""
    return f"{_PREFIX}{slug(layer)}.{slug(key)}"


def tag(artists: "Iterable[Artist]", layer: str, key: str) -> None:
    """Put several artists into one layer, each under a key of its own."""
    for index, artist in enumerate(artists):
        artist.set_gid(layer_gid(layer, f"{key}-{index}"))


def slug(text: str) -> str:
    """Letters, digits and hyphens: it becomes an XML id."""
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in text)


def parse_gid(identifier: str) -> tuple[str, str] | None:
    """Layer and key of an id that `layer_gid` made."""
    if not identifier.startswith(_PREFIX):
        return None
    layer, _, key = identifier.removeprefix(_PREFIX).partition(".")
    return layer, key
