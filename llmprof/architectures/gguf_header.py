"""Header of a GGUF file, versions 2 and 3: metadata and where each tensor lies.

Source: docs/gguf.md of ggml.
"""

import mmap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Final

from llmprof.architectures.gguf_cursor import DAMAGED, Cursor, MetadataValue
from llmprof.architectures.gguf_types import GGML_TYPES, GgmlType
from llmprof.errors import CapabilityError, InputError

MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_MAX_DIMENSIONS: Final = 4
_MAX_ALIGNMENT: Final = 2**20
_MIN_PAIR_BYTES: Final = 13
"""Key length, value type and one byte."""
_MIN_TENSOR_BYTES: Final = 32
"""Name length, one dimension, type and offset."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    name: str
    """As in the file: `blk.0.attn_q.weight`."""
    shape: tuple[int, ...]
    """Logical: [out_features, in_features]; the file lists the dimensions the other way round."""
    type: GgmlType
    offset: int
    """Of its first byte, from the start of the file."""
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    path: Path
    version: int
    metadata: dict[str, MetadataValue]
    tensors: tuple[GgufTensor, ...]

    def find(self, name: str) -> GgufTensor | None:
        return next((tensor for tensor in self.tensors if tensor.name == name), None)


def read_header(path: Path) -> GgufHeader:
    """Read and check everything before the tensor data, and that the data is all there.

    Raises:
        InputError: not GGUF, damaged, truncated, or one shard of several.
        CapabilityError: a version, byte order or tensor type that is not supported.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise InputError(f"{path} is not a GGUF file: it does not start with 'GGUF'")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _parse(Cursor(data, str(path)), path, len(data))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _parse(cursor: Cursor, path: Path, file_bytes: int) -> GgufHeader:
    cursor.offset = len(MAGIC)
    version = _version(cursor)
    num_tensors = cursor.count("the number of tensors", _MIN_TENSOR_BYTES)
    num_pairs = cursor.count("the number of metadata pairs", _MIN_PAIR_BYTES)
    metadata = _metadata(cursor, num_pairs)
    _refuse_shard(metadata, path)
    alignment = _alignment(metadata, cursor)
    relative = [_tensor(cursor, index, alignment) for index in range(num_tensors)]
    start = -(-cursor.offset // alignment) * alignment
    tensors = tuple(_placed(tensor, start, file_bytes, path) for tensor in relative)
    _refuse_clashes(tensors, cursor)
    return GgufHeader(path, version, metadata, tensors)


def _version(cursor: Cursor) -> int:
    version = cursor.uint32("the version")
    if version in _VERSIONS:
        return version
    if version & 0xFFFF == 0:
        raise CapabilityError(f"{cursor.where} is a big-endian GGUF file, which is not supported")
    raise CapabilityError(
        f"{cursor.where} is GGUF version {version}; supported: 2 and 3",
        remedy="Convert it with a current llama.cpp",
    )


def _metadata(cursor: Cursor, num_pairs: int) -> dict[str, MetadataValue]:
    metadata: dict[str, MetadataValue] = {}
    for index in range(num_pairs):
        key = cursor.name(f"the key of metadata pair {index + 1} of {num_pairs}")
        if key in metadata:
            raise cursor.broken(f"the metadata key '{key}' appears twice")
        metadata[key] = cursor.value(f"the metadata of '{key}'")
    return metadata


def _refuse_shard(metadata: dict[str, MetadataValue], path: Path) -> None:
    shards = metadata.get("split.count", 1)
    if not isinstance(shards, int) or shards <= 1:
        return
    index = metadata.get("split.no")
    number = index + 1 if isinstance(index, int) else "?"
    raise InputError(
        f"{path} is incomplete: shard {number} of {shards} of a split GGUF file",
        remedy="Merge the shards with llama.cpp's gguf-split --merge",
    )


def _alignment(metadata: dict[str, MetadataValue], cursor: Cursor) -> int:
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 8 <= alignment <= _MAX_ALIGNMENT or alignment % 8:
        raise cursor.broken(f"general.alignment is {alignment!r}, expected a multiple of 8")
    return alignment


def _tensor(cursor: Cursor, index: int, alignment: int) -> GgufTensor:
    """One entry of the tensor table; its offset still counts from the start of the data."""
    name = cursor.name(f"the name of tensor {index + 1}")
    shape = _shape(cursor, name)
    number = cursor.uint32(f"the type of tensor '{name}'")
    kind = GGML_TYPES.get(number)
    if kind is None:
        raise CapabilityError(f"{cursor.where}: tensor '{name}' has the unknown ggml type {number}")
    if shape[-1] % kind.block_size:
        raise cursor.broken(
            f"rows of tensor '{name}' hold {shape[-1]} numbers, "
            f"no multiple of the {kind.block_size} of {kind.name}"
        )
    offset = cursor.uint64(f"the offset of tensor '{name}'")
    if offset % alignment:
        raise cursor.broken(f"the offset {offset} of tensor '{name}' is not aligned to {alignment}")
    return GgufTensor(name, shape, kind, offset, prod(shape) // kind.block_size * kind.block_bytes)


def _shape(cursor: Cursor, name: str) -> tuple[int, ...]:
    dimensions = cursor.uint32(f"the dimensions of tensor '{name}'")
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise cursor.broken(f"tensor '{name}' has {dimensions} dimensions, expected 1 to 4")
    sizes = tuple(cursor.uint64(f"the shape of tensor '{name}'") for _ in range(dimensions))
    if 0 in sizes:
        raise cursor.broken(f"tensor '{name}' has the empty shape {list(sizes)}")
    return sizes[::-1]


def _placed(tensor: GgufTensor, start: int, file_bytes: int, path: Path) -> GgufTensor:
    offset = start + tensor.offset
    end = offset + tensor.stored_bytes
    if end > file_bytes:
        raise InputError(
            f"{path} is truncated or damaged: tensor '{tensor.name}' ends at byte {end}, "
            f"the file at {file_bytes}",
            remedy=DAMAGED,
        )
    return GgufTensor(tensor.name, tensor.shape, tensor.type, offset, tensor.stored_bytes)


def _refuse_clashes(tensors: Iterable[GgufTensor], cursor: Cursor) -> None:
    tensors = sorted(tensors, key=lambda tensor: tensor.offset)
    for name, number in Counter(tensor.name for tensor in tensors).items():
        if number > 1:
            raise cursor.broken(f"tensor '{name}' appears {number} times")
    for before, after in pairwise(tensors):
        if before.offset + before.stored_bytes > after.offset:
            raise cursor.broken(f"tensors '{before.name}' and '{after.name}' overlap")
