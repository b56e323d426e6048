"""The rows of `datasheets.json`, in base units."""

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from llmprof.devices.names import spelled_alike
from llmprof.schema.datasheet import Datasheet

_FILE: Final = "datasheets.json"
_GIB: Final = 1 << 30
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One device, and how machines report it."""

    names: frozenset[str]
    """As `spelled_alike` has them."""
    logical_processors: frozenset[int]
    """Of a CPU, with and without simultaneous threads; empty for other devices."""
    datasheet: Datasheet


@functools.cache
def rows() -> tuple[Row, ...]:
    """Every device of the table, in its order."""
    text = resources.files("llmprof.devices").joinpath(_FILE).read_text(encoding="utf-8")
    table = json.loads(text)
    return tuple(_row(entry, table["documents"]) for entry in table["devices"])


def _row(entry: dict[str, Any], documents: dict[str, dict[str, str]]) -> Row:
    document = documents[entry["document"]]
    counts = (entry.get("cores"), entry.get("logical_processors"))
    return Row(
        names=frozenset(map(spelled_alike, entry["reported_as"])),
        logical_processors=frozenset(count for count in counts if count),
        datasheet=Datasheet(
            name=entry["name"],
            vendor=entry["vendor"],
            form_factor=entry.get("form_factor"),
            flops_per_s={
                dtype: tera * 1e12 for dtype, tera in entry.get("dense_tera_per_s", {}).items()
            },
            memory_bytes_per_s=_scaled(entry.get("memory_gb_per_s"), 1e9),
            memory_bytes=_whole(entry.get("memory_gib"), _GIB),
            l2_bytes=_whole(entry.get("l2_mib"), _MIB),
            tdp_w=entry.get("tdp_w"),
            note=entry.get("note"),
            document=document["title"],
            document_date=document["date"],
        ),
    )


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit


def _whole(value: float | None, unit: int) -> int | None:
    return None if value is None else round(value * unit)
