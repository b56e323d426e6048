import importlib.metadata
from pathlib import Path

import pytest

from scripts.gpu import carry


@pytest.mark.parametrize(
    ("here", "carried", "taken"),
    [
        (None, "2.14.4", True),
        ("2.9.0", "2.14.4", True),
        ("2.14.4", "2.14.4", False),
        ("3.0", "2.14.4", False),
        ("2.10", "2.9", False),
    ],
)
def test_only_what_is_missing_or_older_is_taken(
    here: str | None, carried: str, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if here is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return here

    monkeypatch.setattr(importlib.metadata, "version", version)
    folder = tmp_path / carry.FOLDER
    folder.mkdir()
    wheel = folder / f"pydantic-{carried}-py3-none-any.whl"
    wheel.touch()
    assert (wheel in carry.missing(tmp_path)) is taken


def test_what_is_carried_is_pinned() -> None:
    root = Path(__file__).parents[3]
    pinned = {line.split("==")[0] for line in (root / "constraints.txt").read_text().splitlines()}
    assert set(carry.needed(root)) <= pinned
