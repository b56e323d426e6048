"""One file of /proc or /sys, which another system may not have or not let us read."""

from pathlib import Path


def read_text(path: Path) -> str | None:
    """Content without surrounding space; None where the file is absent or closed to us."""
    try:
        return path.read_text().strip()
    except OSError:
        return None
