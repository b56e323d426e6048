"""Wheels that travel along to a machine from which no package index can be reached."""

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FOLDER: Final = Path(".gpu-wheels")
SITE: Final = FOLDER / "site"
"""Where they are unpacked: not among the results, which travel back."""
KERNELS: Final = FOLDER / "kernels"
"""Where Triton keeps what it compiles; likewise."""
_LIST: Final = Path("scripts/gpu/wheels.txt")
_VERSION: Final = re.compile(r"\d+")


def needed(root: Path) -> tuple[str, ...]:
    """Distributions that the check needs beside torch, NumPy, SciPy, numba, pandas and matplotlib."""
    lines = (root / _LIST).read_text().splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def missing(root: Path) -> tuple[Path, ...]:
    """Carried wheels of distributions that are not here, or older than the carried ones.

    Of each the newest: pip installs nothing at all where it is given two versions of one.
    """
    newest: dict[str, Path] = {}
    for wheel in (root / FOLDER).glob("*.whl"):
        name, version = _told_by(wheel)
        if name not in newest or _ordered(_told_by(newest[name])[1]) < _ordered(version):
            newest[name] = wheel
    return tuple(newest[name] for name in sorted(newest) if not _is_here(newest[name]))


def install_missing(root: Path, target: Path) -> str:
    """Unpack what is missing into `target`, which belongs on PYTHONPATH then. What was done, in words.

    Nothing that is here already is replaced by an older version, and nothing outside of `target` is
    touched. A wheel that pip refuses costs none of the others.
    """
    wheels = missing(root)
    if not wheels:
        return "nothing had to be installed"
    if _trouble(wheels, target) is None:
        return f"installed for this check alone: {_names(wheels)}"
    troubles = {wheel: _trouble((wheel,), target) for wheel in wheels}
    done = [wheel for wheel in wheels if troubles[wheel] is None]
    refused = [f"{_names([wheel])}: {why}" for wheel, why in troubles.items() if why]
    return f"installed for this check alone: {_names(done)}; pip refused {'; '.join(refused)}"


def _trouble(wheels: Sequence[Path], target: Path) -> str | None:
    """Why pip does not install them; None where it did."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    command += [
        "--no-cache-dir",
        "--no-compile",
        "--upgrade",
        "--target",
        str(target),
        *map(str, wheels),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip()[-300:] or "no reason" if done.returncode else None


def _names(wheels: Sequence[Path]) -> str:
    return ", ".join(_told_by(wheel)[0] for wheel in wheels) or "nothing"


def _told_by(wheel: Path) -> tuple[str, str]:
    """Name and version, as its file name spells them."""
    name, version = wheel.name.split("-")[:2]
    return name, version


def _is_here(wheel: Path) -> bool:
    name, version = _told_by(wheel)
    try:
        return _ordered(importlib.metadata.version(name)) >= _ordered(version)
    except importlib.metadata.PackageNotFoundError:
        return False


def _ordered(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in _VERSION.findall(version)[:3])
