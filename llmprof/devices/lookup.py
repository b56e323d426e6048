"""Which row of the table a device is, or why it is none of them: never another's."""

from dataclasses import dataclass
from typing import Final

from llmprof import units
from llmprof.devices.names import spelled_alike
from llmprof.devices.table import Row, rows
from llmprof.schema.datasheet import Datasheet
from llmprof.schema.environment import Environment, GpuInfo

_LEAST_SHARE: Final = 0.88
_LARGEST_SHARE: Final = 1.03
"""Of the stated memory: drivers keep some for themselves, error correction takes a sixteenth, and a
card of another size is another card."""


@dataclass(frozen=True, slots=True)
class NoDatasheet:
    """There is no peak to compare with, and why."""

    reason: str


def datasheet_of(environment: Environment) -> Datasheet | NoDatasheet:
    """Of the device that a run used."""
    if environment.gpu is not None:
        return _of_gpu(environment.gpu)
    return find_device(environment.device_name, logical_processors=environment.cpu.logical_cores)


def find_device(
    name: str, *, memory_bytes: int | None = None, logical_processors: int | None = None
) -> Datasheet | NoDatasheet:
    """By the name that NVML, torch or /proc/cpuinfo gives, whole and not by its beginning.

    Args:
        name: as reported; marks such as (R) and a leading NVIDIA do not matter.
        memory_bytes: as reported, which tells cards of one name apart and slices from whole cards.
        logical_processors: of a CPU, all that the system shows.
    """
    named = [row for row in rows() if spelled_alike(name) in row.names]
    if not named:
        return NoDatasheet(f"the datasheet table does not know '{name}'")
    fitting = [row for row in named if _fits(row, memory_bytes, logical_processors)]
    if len(fitting) == 1:
        return fitting[0].datasheet
    if fitting:
        names = ", ".join(row.datasheet.name for row in fitting)
        return NoDatasheet(f"'{name}' may be any of {names}")
    return NoDatasheet(_mismatch(name, named, memory_bytes, logical_processors))


def _of_gpu(gpu: GpuInfo) -> Datasheet | NoDatasheet:
    if gpu.mig:
        return NoDatasheet(
            "a MIG instance has a part of its GPU: a whole GPU's peak is not its own"
        )
    return find_device(gpu.name, memory_bytes=gpu.memory_bytes)


def _fits(row: Row, memory_bytes: int | None, logical_processors: int | None) -> bool:
    stated = row.datasheet.memory_bytes
    if stated is not None and memory_bytes is not None:
        return _LEAST_SHARE * stated <= memory_bytes <= _LARGEST_SHARE * stated
    if row.logical_processors and logical_processors is not None:
        return logical_processors in row.logical_processors
    return True


def _mismatch(
    name: str, named: list[Row], memory_bytes: int | None, logical_processors: int | None
) -> str:
    if memory_bytes is not None and named[0].datasheet.memory_bytes is not None:
        stated = " or ".join(units.byte_count(row.datasheet.memory_bytes or 0) for row in named)
        return f"'{name}' has {stated}, and this one has {units.byte_count(memory_bytes)}"
    whole = max(max(row.logical_processors) for row in named)
    return (
        f"'{name}' has {whole} logical processors, and this system shows {logical_processors}: "
        "a socket's peak is not that of a part of it, or of two"
    )
