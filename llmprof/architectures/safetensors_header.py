"""Header of a safetensors file: what each tensor is and where it lies.

Source: the format description in the safetensors repository: eight bytes with the length of a JSON
object, the object, then the data without holes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final

from llmprof.architectures.json_file import parse_json_object
from llmprof.errors import InputError

_LENGTH_BYTES: Final = 8
_MAX_HEADER_BYTES: Final = 100_000_000
"""The limit of the safetensors library."""
_MAX_DIMENSIONS: Final = 16
_DAMAGED: Final = "Download or copy it again"

DTYPE_BYTES: Final = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U64": 8,
    "U32": 4,
    "U16": 2,
    "U8": 1,
    "BOOL": 1,
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    name: str
    shape: tuple[int, ...]
    dtype: str
    """As the format names it: F32, BF16, I32, ..."""
    offset: int
    """Of its first byte, from the start of the file."""
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    path: Path
    tensors: tuple[StoredTensor, ...]
    """In the order of their data."""


def read_header(path: Path) -> SafetensorsHeader:
    """Read and check the header, and that the data after it is all there.

    Raises:
        InputError: not safetensors, damaged or truncated.
    """
    text, data_start, data_bytes = _read_text(path)
    entries = parse_json_object(text, f"the header of {path}")
    entries.pop("__metadata__", None)
    tensors = [_tensor(name, entry, data_start, path) for name, entry in entries.items()]
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.stored_bytes))
    _check_layout(tensors, data_start, data_bytes, path)
    return SafetensorsHeader(path, tuple(tensors))


def _read_text(path: Path) -> tuple[bytes, int, int]:
    """Header text, offset of the data, bytes of data."""
    try:
        with path.open("rb") as file:
            file_bytes = path.stat().st_size
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            start = _LENGTH_BYTES + length
            if file_bytes < _LENGTH_BYTES or start > file_bytes or length > _MAX_HEADER_BYTES:
                raise InputError(
                    f"{path} is truncated or no safetensors file: {file_bytes} bytes, "
                    f"and a header that claims {length}",
                    remedy=_DAMAGED,
                )
            return file.read(length), start, file_bytes - start
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _tensor(name: str, entry: object, data_start: int, path: Path) -> StoredTensor:
    if not isinstance(entry, Mapping):
        raise _broken(path, f"tensor '{name}' is no object")
    dtype = entry.get("dtype")
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise _broken(path, f"tensor '{name}' has the unknown dtype {str(dtype)[:40]!r}")
    shape = _integers(entry.get("shape"), f"the shape of tensor '{name}'", path)
    if len(shape) > _MAX_DIMENSIONS:
        raise _broken(path, f"tensor '{name}' has {len(shape)} dimensions")
    extent = _integers(entry.get("data_offsets"), f"data_offsets of tensor '{name}'", path)
    stored_bytes = prod(shape) * DTYPE_BYTES[dtype]
    if len(extent) != 2 or extent[1] - extent[0] != stored_bytes:
        raise _broken(
            path, f"data_offsets of tensor '{name}' do not span its {dtype} {list(shape)}"
        )
    return StoredTensor(name, shape, dtype, data_start + extent[0], stored_bytes)


def _integers(value: object, part: str, path: Path) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(
        isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 2**63 for one in value
    ):
        raise _broken(path, f"{part} is no list of whole numbers")
    return tuple(value)


def _check_layout(
    tensors: list[StoredTensor], data_start: int, data_bytes: int, path: Path
) -> None:
    """The tensors must fill the data exactly, one after the other."""
    expected = data_start
    for tensor in tensors:
        if tensor.offset != expected:
            raise _broken(path, f"tensor '{tensor.name}' leaves a hole or overlaps the one before")
        expected += tensor.stored_bytes
    if expected != data_start + data_bytes:
        raise InputError(
            f"{path} is truncated or damaged: its header describes {expected - data_start} bytes "
            f"of tensors, the file holds {data_bytes}",
            remedy=_DAMAGED,
        )


def _broken(path: Path, what: str) -> InputError:
    return InputError(f"{path} is not a usable safetensors file: {what}")
