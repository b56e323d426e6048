"""The raw page of Nsight Compute: `ncu --csv --page raw --print-units base`."""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from llmprof.errors import InputError

_FIRST_COLUMN: Final = "ID"
_KERNEL_COLUMN: Final = "Kernel Name"
_TO_BASE: Final = {
    **dict.fromkeys(("", "byte", "inst", "second", "s", "%"), 1.0),
    **dict.fromkeys(("msecond", "ms"), 1e-3),
    **dict.fromkeys(("usecond", "us"), 1e-6),
    **dict.fromkeys(("nsecond", "ns"), 1e-9),
    "Kbyte": 1e3,
    "Mbyte": 1e6,
    "Gbyte": 1e9,
    "Tbyte": 1e12,
}
"""Units that ncu prints, decimal, to seconds, bytes and counts."""
_REMEDY: Final = "Write it with: ncu --csv --page raw --print-units base --log-file FILE ..."


@dataclass(frozen=True, slots=True)
class ProfiledKernel:
    """One launch, or one range or graph that was profiled as a whole."""

    name: str
    metrics: Mapping[str, float]
    """By ncu's name, in base units; only what was measured."""
    labels: str
    """Every other cell: names of NVTX ranges are among them."""


def read_ncu_csv(path: Path) -> tuple[ProfiledKernel, ...]:
    """Every profiled kernel, in the order of the file.

    Raises:
        InputError: no such file, or none that ncu writes; a number or a unit that cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path}: {error}") from error
    rows = list(csv.reader(io.StringIO(_from_the_header(text, path)), strict=False))
    header = rows[0]
    if _KERNEL_COLUMN not in header or "Metric Name" in header:
        raise InputError(f"{path} is not the raw page of ncu", remedy=_REMEDY)
    if len(rows) < 2:
        raise InputError(f"{path} holds no kernel", remedy=_REMEDY)
    return tuple(_kernels(header, rows[1], rows[2:], path))


def _from_the_header(text: str, path: Path) -> str:
    """Drop what stands before: ncu writes lines of its own (`==PROF== ...`) and so does the program."""
    lines = text.splitlines(keepends=True)
    for index, line in enumerate(lines):
        if line.lstrip().startswith((f'"{_FIRST_COLUMN}",', f"{_FIRST_COLUMN},")):
            return "".join(lines[index:])
    raise InputError(f"{path} holds no table of ncu", remedy=_REMEDY)


def _kernels(
    header: list[str], units: list[str], rows: list[list[str]], path: Path
) -> Iterator[ProfiledKernel]:
    """Metrics are the columns with two underscores, as ncu names them; the second row has units."""
    metrics = [index for index, name in enumerate(header) if "__" in name]
    for row in rows:
        if len(row) != len(header):
            continue  # a line of the program between the kernels
        values = {
            header[index]: _number(row[index], units[index], header[index], path)
            for index in metrics
            if row[index] not in ("", "n/a", "nan")
        }
        labels = [cell for index, cell in enumerate(row) if index not in metrics]
        yield ProfiledKernel(row[header.index(_KERNEL_COLUMN)], values, " ".join(labels))


def _number(text: str, unit: str, metric: str, path: Path) -> float:
    try:
        return float(text.replace(",", "")) * _TO_BASE[unit]
    except (ValueError, KeyError) as error:
        raise InputError(
            f"{path}: {metric} is '{text[:40]} {unit[:20]}', which is no number in a known unit",
            remedy=_REMEDY,
        ) from error
