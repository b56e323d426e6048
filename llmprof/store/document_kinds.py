"""What each kind of llmprof's own files is, and what to do with one that was given for another."""

import re
from pathlib import Path
from typing import Final

from llmprof.errors import InputError

_MARK: Final = re.compile(rb'"schema"\s*:\s*"llmprof\.([a-z-]{1,20})/[0-9]{1,6}"')
_HEAD_BYTES: Final = 256
"""The schema is the first key of every document that llmprof writes."""
_RUN_OF_IT: Final = "Give the run that it was made from: its id, or the run file in .llmprof/runs"

_KINDS: Final[dict[str, tuple[str, str | None]]] = {
    "run": (
        "a saved run",
        "Show it with llmprof report FILE, or start from it: llmprof predict FILE",
    ),
    "report": ("the report of a run", _RUN_OF_IT),
    "sweep": (
        "a sweep, of many runs",
        "Give one of its runs ('llmprof ls' lists them); the command that measured the sweep shows "
        "it again: llmprof sweep ... -o FILE",
    ),
    "comparison": ("a comparison of two runs", "Give the runs themselves: llmprof compare A B"),
    "gate": ("a gate's result", "Give the run itself: llmprof gate check RUN --baseline RUN"),
    "ceilings": (
        "the ceilings of a device",
        "Predict with them: llmprof predict MODEL --device-ceilings FILE",
    ),
    "prediction": ("a prediction", _RUN_OF_IT),
    "confirmation": ("a confirmed prediction", _RUN_OF_IT),
    "plan": ("a plan", None),
    "inspection": ("a model on paper", None),
    "quality": ("the accuracy of weight formats", None),
}
"""By the name of the schema: what it is, and what to give instead or to do with it."""
_WANTED: Final = {
    "run": "Give a saved run: 'llmprof ls' lists them",
    "ceilings": "On that device, llmprof ceilings --json prints them",
}
_NO_MODEL: Final = "Give the model that it is about"


def what_it_is(kind: str) -> str:
    """`a saved run`; an unknown kind by the name of its schema."""
    return _KINDS[kind][0] if kind in _KINDS else f"a document of kind {kind}"


def instead_of(kind: str, *, wanted: str) -> str | None:
    """What to do with a document of this kind where another was wanted."""
    own = _KINDS[kind][1] if kind in _KINDS else None
    return own if own and wanted == "run" else _WANTED.get(wanted, own)


def kind_of_file(path: Path) -> str | None:
    """The kind of a document of llmprof; None for any other file, and for none at all."""
    try:
        with path.open("rb") as file:
            match = _MARK.search(file.read(_HEAD_BYTES))
    except (OSError, ValueError):  # ValueError: a null byte in the name
        return None
    return match[1].decode() if match else None


def refuse_as_model(argument: str) -> None:
    """A document of llmprof is no model: say what it is before its fields are missed.

    Raises:
        InputError: `argument` is such a file.
    """
    kind = kind_of_file(Path(argument)) if argument.lower().endswith(".json") else None
    if kind is not None:
        own = _KINDS[kind][1] if kind in _KINDS else None
        raise InputError(f"{argument} is {what_it_is(kind)}, and no model", remedy=own or _NO_MODEL)
