"""The raw page of Nsight Compute: `ncu --csv --page raw --print-units base`."""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from llmprof.errors import InputError

_FIRST_COLUMN: Final = "ID"
_KERNEL_COLUMN: Final = "Kernel Name"
_DECIMAL: Final = {"K": 3, "k": 3, "M": 6, "G": 9, "T": 12}
_TO_BASE: Final = {
    **dict.fromkeys(("", "byte", "B", "inst", "second", "sec", "s", "%"), 1.0),
    **dict.fromkeys(("msecond", "ms"), 1e-3),
    **dict.fromkeys(("usecond", "us"), 1e-6),
    **dict.fromkeys(("nsecond", "ns"), 1e-9),
    **{f"{prefix}{byte}": 10.0**n for prefix, n in _DECIMAL.items() for byte in ("byte", "B")},
    **{f"{prefix}{count}": 10.0**n for prefix, n in _DECIMAL.items() for count in ("inst", "")},
}
"""Units that ncu prints, decimal, to seconds, bytes and counts; the spelling changed with versions."""
_USED: Final = (
    *("gpu__time_duration", "dram__bytes", "sm__ops_path_tensor_"),
    "smsp__sass_thread_inst_executed_op_",
)
"""Beginnings of the metrics that `analysis.ncu` computes with."""
_ABSENT: Final = ("", "n/a", "nan", "(!) n/a", "no data")
_NUMBER: Final = re.compile(r"(\d+|\d{1,3}(,\d{3})+)(\.\d+)?([eE][+-]?\d+)?")
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
        raise InputError(f"{path} is no text (UTF-8)", remedy=_REMEDY) from error
    kernels = tuple(kernel for table in _tables(text, path) for kernel in _kernels(table, path))
    if not kernels:
        raise InputError(f"{path} holds no kernel", remedy=_REMEDY)
    return kernels


@dataclass(slots=True)
class _Table:
    header: list[str]
    units: list[str]
    rows: list[list[str]]


def _tables(text: str, path: Path) -> list[_Table]:
    """One for each header: ncu writes one per process.

    Its own lines (`==PROF== ...`) and what the program printed, in front and in between, are
    dropped.
    """
    tables: list[_Table] = []
    for row in csv.reader(io.StringIO(_from_the_header(text, path)), strict=False):
        if row[:1] == [_FIRST_COLUMN] and _KERNEL_COLUMN in row:
            tables.append(_Table(row, [], []))
        elif tables and len(row) == len(tables[-1].header):
            if tables[-1].units:
                tables[-1].rows.append(row)
            else:
                tables[-1].units = row
    if not tables or any("Metric Name" in table.header for table in tables):
        raise InputError(f"{path} is not the raw page of ncu", remedy=_REMEDY)
    return tables


def _from_the_header(text: str, path: Path) -> str:
    """Drop what stands before: its quotes need not come in pairs."""
    lines = text.splitlines(keepends=True)
    for index, line in enumerate(lines):
        if line.lstrip().startswith((f'"{_FIRST_COLUMN}",', f"{_FIRST_COLUMN},")):
            return "".join(lines[index:])
    raise InputError(f"{path} holds no table of ncu", remedy=_REMEDY)


def _kernels(table: _Table, path: Path) -> Iterator[ProfiledKernel]:
    """Metrics are the columns with two underscores, as ncu names them; the second row has units.

    Those that nothing here is computed from may be in any unit: a full set has hundreds.
    """
    header = table.header
    if table.units and table.units[0]:
        raise InputError(f"{path}: the row of units below the header is missing", remedy=_REMEDY)
    metrics = [index for index, name in enumerate(header) if "__" in name]
    used = [index for index in metrics if header[index].startswith(_USED)]
    for row in table.rows:
        values = {
            header[index]: _number(row[index], table.units[index], header[index], path)
            for index in used
            if row[index].strip().lower() not in _ABSENT
        }
        labels = [cell for index, cell in enumerate(row) if index not in metrics]
        yield ProfiledKernel(row[header.index(_KERNEL_COLUMN)], values, " ".join(labels))


def _number(text: str, unit: str, metric: str, path: Path) -> float:
    """In base units.

    A comma parts thousands, and only where three digits follow it each time: in a locale in which
    it is the decimal point, another reading would be 1000 times too much.
    """
    plain = "".join(text.split())
    if not _NUMBER.fullmatch(plain) or unit.strip() not in _TO_BASE:
        raise InputError(
            f"{path}: {metric} is '{text[:40]} {unit[:20]}', which is no number in a known unit",
            remedy=f"{_REMEDY}, with LC_ALL=C",
        )
    return float(plain.replace(",", "")) * _TO_BASE[unit.strip()]
