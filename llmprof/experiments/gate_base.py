"""The baseline's settings: another file, or the same file as it stands in another commit."""

import os
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
    shown = _git(path, ref, "show", f"{ref}:./{path.name}")
    if shown.returncode:
        known = _git(path, ref, "rev-parse", "--quiet", "--verify", f"{ref}^{{commit}}")
        lines = shown.stderr.decode("utf-8", "replace").strip().splitlines() or ["git failed"]
        why = lines[-1].removeprefix("fatal: ").rstrip(".")
        remedy = _remedy(why, ref, ref_is_known=not known.returncode)
        raise InputError(f"cannot read {path} at {ref}: {why}", remedy=remedy)
    try:
        text = shown.stdout.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} at {ref}: not UTF-8 text (byte {error.start})") from error
    return load_settings_text(text, f"{path} at {ref}", sets)


def _git(path: Path, ref: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """In the file's folder, in plain English.

    Raises:
        InputError: git does not run, or the folder is none.
    """
    try:
        return subprocess.run(
            ["git", "-C", str(path.parent), *words],
            capture_output=True,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as error:
        raise InputError(f"cannot read {path} at {ref}: git does not run here") from error


def _remedy(why: str, ref: str, *, ref_is_known: bool) -> str:
    """What to do about what git said."""
    if "not a git repository" in why:
        return (
            "Name a settings file inside a git checkout, or give --base CONFIG with the baseline's "
            "settings"
        )
    if ref_is_known:
        return "That commit has no such file: name one that has it, or give --base CONFIG"
    # A shallow clone of one branch has no rule of where another one goes: it must be told.
    remote, slash, branch = ref.partition("/")
    where = (remote, branch) if slash and branch else ("origin", "main")
    return (
        "In CI, fetch the base first: git fetch --depth 1 "
        f"{where[0]} {where[1]}:refs/remotes/{where[0]}/{where[1]}"
    )
