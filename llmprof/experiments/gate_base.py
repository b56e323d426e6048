"""The baseline's settings: another file, or the same file as it stands in another commit."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from llmprof.errors import InputError
from llmprof.schema.settings import RunConfig
from llmprof.store.settings_file import load_settings_text


def settings_at_ref(path: Path, ref: str, sets: Sequence[str]) -> RunConfig:
    """The settings file as commit, branch or tag `ref` of its repository has it.

    Raises:
        InputError: no git, no repository, no such ref, or no such file in it.
    """
    if ref.startswith("-"):
        raise InputError(f"'{ref}' is no git ref")
    command = ["git", "-C", str(path.parent), "show", f"{ref}:./{path.name}"]
    try:
        shown = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        raise InputError(f"cannot read {path} at {ref}: git does not run here") from error
    if shown.returncode:
        lines = shown.stderr.decode("utf-8", "replace").strip().splitlines() or ["git failed"]
        why = lines[-1].removeprefix("fatal: ")
        raise InputError(f"cannot read {path} at {ref}: {why}", remedy=_remedy(why))
    try:
        text = shown.stdout.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} at {ref}: not UTF-8 text (byte {error.start})") from error
    return load_settings_text(text, f"{path} at {ref}", sets)


def _remedy(why: str) -> str:
    """What to do about what git said."""
    if "not a git repository" in why:
        return (
            "Name a settings file inside a git checkout, or give --base CONFIG with the baseline's "
            "settings"
        )
    return "In CI, fetch the base first: git fetch --depth 1 origin main"
