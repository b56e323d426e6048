"""Wheels that travel along to a machine from which no package index can be reached."""

import importlib.metadata
import re
import subprocess
import sys
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
    """Carried wheels of distributions that are not here, or older than the carried ones."""
    return tuple(wheel for wheel in sorted((root / FOLDER).glob("*.whl")) if not _is_here(wheel))


def install_missing(root: Path, target: Path) -> str:
    """Unpack what is missing into `target`, which belongs on PYTHONPATH then. What was done, in words.

    Nothing that is here already is replaced by an older version, and nothing outside of `target` is
    touched.
    """
    wheels = missing(root)
    if not wheels:
        return "nothing had to be installed"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    command += ["--no-cache-dir", "--target", str(target), *map(str, wheels)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    names = ", ".join(wheel.name.split("-")[0] for wheel in wheels)
    if done.returncode:
        return f"pip could not install {names}: {done.stderr.strip()[-300:]}"
    return f"installed for this check alone: {names}"


def _is_here(wheel: Path) -> bool:
    name, version = wheel.name.split("-")[:2]
    try:
        return _ordered(importlib.metadata.version(name)) >= _ordered(version)
    except importlib.metadata.PackageNotFoundError:
        return False


def _ordered(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in _VERSION.findall(version)[:3])
