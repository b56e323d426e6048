"""Names that strangers chose, on a terminal."""


def printable(text: str) -> str:
    """Escape what would move a terminal's cursor: names of files and models may hold anything."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
