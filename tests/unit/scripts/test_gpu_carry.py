import importlib.metadata
import zipfile
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


def test_of_two_versions_the_newer_one_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / carry.FOLDER
    folder.mkdir()
    for version in ("2.9.0", "2.10.1", "2.10.0"):
        (folder / f"nowhere_installed-{version}-py3-none-any.whl").touch()
    assert [one.name.split("-")[1] for one in carry.missing(tmp_path)] == ["2.10.1"]


def test_a_wheel_that_pip_refuses_costs_no_other(tmp_path: Path) -> None:
    folder, site = tmp_path / carry.FOLDER, tmp_path / "site"
    folder.mkdir()
    broken = folder / "of_other_tags-1.0-cp27-cp27m-win32.whl"
    broken.touch()
    wheel = folder / "nowhere_installed-1.0-py3-none-any.whl"
    about = "nowhere_installed-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("nowhere_installed.py", "")
        archive.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: nowhere-installed\nVersion: 1.0\n"
        )
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    words = carry.install_missing(tmp_path, site)
    assert (site / "nowhere_installed.py").exists()
    assert words.startswith("installed for this check alone: nowhere_installed; ")
    assert "pip refused of_other_tags: ERROR" in words


def test_what_is_carried_is_pinned() -> None:
    root = Path(__file__).parents[3]
    pinned = {line.split("==")[0] for line in (root / "constraints.txt").read_text().splitlines()}
    assert set(carry.needed(root)) <= pinned
