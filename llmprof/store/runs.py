"""Saved runs: `.llmprof/runs` under the current folder, found again by a short name."""

import os
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from llmprof.errors import InputError
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from llmprof.store.documents import STDIN, read_document, write_document
from llmprof.store.outputs import check_folder

_LAST: Final = re.compile(r"@last(?:~([0-9]{1,6}))?")
_SUFFIX: Final = re.compile(r"[0-9a-f]{8}")
_TIME_LENGTH: Final = len("20261129T154500Z")
_LONGEST_SLUG: Final = 40
_MOST_CANDIDATES: Final = 5


def runs_folder() -> Path:
    """Return `runs` in LLMPROF_DIR, or in `.llmprof` under the current folder."""
    return Path(os.environ.get("LLMPROF_DIR") or ".llmprof") / "runs"


def new_run_id(created: datetime, config: RunConfig) -> str:
    """Make an id that sorts by time: 20261129T154500Z-smollm2-135m-b1-p512-1a2b3c4d."""
    time = created.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    shape = "-".join(config.workload.sizes[:2])
    return f"{time}-{_slug(config.model)}-{shape}-{secrets.token_hex(4)}"


def save_run(record: RunRecord) -> Path:
    """Write a run into the folder of runs, which is made where it is missing.

    Raises:
        InputError: the folder or the file cannot be written.
    """
    folder = runs_folder()
    _make_folder(folder)
    path = folder / f"{record.id}.json"
    write_document(path, record)
    return path


def check_runs_writable() -> None:
    """Make the folder of runs, so that an unwritable one is found before measuring.

    Raises:
        InputError: it cannot be made or written into.
    """
    _make_folder(runs_folder())
    check_folder(runs_folder())


def find_run(reference: str) -> RunRecord:
    """Read the run that is meant by a path, `@last`, `@last~N`, an id's start or its 8 hex digits.

    `-` is a run file on standard input.

    Raises:
        InputError: none or several match, with the candidates; or the file is damaged.
    """
    record, caveats = read_document(find_run_file(reference), RunRecord)
    return record.model_copy(update={"caveats": record.caveats + caveats})


def find_run_file(reference: str) -> Path:
    """Return the file of the run that is meant; see `find_run`."""
    if reference == str(STDIN) or reference.endswith(".json") or os.sep in reference:
        return Path(reference)
    files = run_files()
    if match := _LAST.fullmatch(reference):
        return _from_the_end(files, int(match[1] or 0), reference)
    exact = [file for file in files if file.stem == reference]
    named = exact or [file for file in files if _is_meant(file.stem, reference)]
    if len(named) == 1:
        return named[0]
    if named:
        raise InputError(
            f"'{reference}' fits {len(named)} runs: {_names(named)}", remedy="Say more"
        )
    raise _no_such_run(reference, files)


def run_files() -> tuple[Path, ...]:
    """Return the files of all saved runs, oldest first.

    Raises:
        InputError: a file stands where the folder of runs is looked for.
    """
    for place in (runs_folder().parent, runs_folder()):
        if place.exists() and not place.is_dir():
            raise InputError(
                f"{place} is a file, and saved runs are looked for in a folder of that name",
                remedy="Point LLMPROF_DIR at a folder, or unset it",
            )
    return tuple(sorted(runs_folder().glob("*.json"), key=_age_key))


def _age_key(file: Path) -> tuple[str, int, str]:
    """Order by the second in the id; within one second by when the file was written."""
    return file.name[:_TIME_LENGTH], file.lstat().st_mtime_ns, file.name


def _is_meant(run_id: str, reference: str) -> bool:
    if _SUFFIX.fullmatch(reference) and run_id.endswith(f"-{reference}"):
        return True
    return bool(reference) and run_id.startswith(reference)


def _from_the_end(files: Sequence[Path], steps_back: int, reference: str) -> Path:
    if steps_back < len(files):
        return files[-1 - steps_back]
    if not files:
        raise _no_such_run(reference, files)
    raise InputError(f"{reference}: {runs_folder()} holds only {len(files)}")


def _no_such_run(reference: str, files: Sequence[Path]) -> InputError:
    if reference.lower().endswith((".yaml", ".yml")):
        return InputError(
            f"{reference} holds settings, and is no saved run",
            remedy=f"Measure it first: llmprof run {reference}",
        )
    if reference and Path(reference).is_dir():
        return InputError(f"{reference} is a folder, and no saved run", remedy="Name a file in it")
    if not files:
        return InputError(
            f"no run '{reference}': {runs_folder()} holds none",
            remedy="Make one with 'llmprof run MODEL', or give the path of a run file",
        )
    return InputError(f"no run '{reference}'", remedy=f"The newest are: {_names(files)}")


def _names(files: Sequence[Path]) -> str:
    newest = [file.stem for file in reversed(files)]
    more = f" and {len(newest) - _MOST_CANDIDATES} more" if len(newest) > _MOST_CANDIDATES else ""
    return f"{', '.join(newest[:_MOST_CANDIDATES])}{more}"


def _slug(model: str) -> str:
    """Return the telling part of a hub id, a preset or a path, as it may stand in a file's name."""
    path = Path(model)
    name = path.parent.name if path.name == "config.json" else path.name
    plain = re.sub(r"[^a-z0-9.]+", "-", name.lower().removesuffix(".gguf"))
    return plain[:_LONGEST_SLUG].strip("-.") or "model"


def _make_folder(folder: Path) -> None:
    home = folder.parent
    try:
        if not home.exists():
            home.mkdir(parents=True)
            # A folder of our own making stays out of the user's commits.
            (home / ".gitignore").write_text("*\n", encoding="utf-8")
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make folder {folder}: {error.strerror}") from error
