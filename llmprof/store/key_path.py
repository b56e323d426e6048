"""The place of a value in nested data."""

from typing import TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]


def dotted(path: KeyPath) -> str:
    """Spell a path as in `gate.metrics[0].name`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")
