"""Little-endian values of a GGUF header, read forward and never past the end of the file."""

import mmap
import struct
from typing import Final, TypeAlias

from llmprof.errors import InputError

MetadataScalar: TypeAlias = int | float | bool | str
MetadataValue: TypeAlias = MetadataScalar | tuple[MetadataScalar, ...]

DAMAGED: Final = "Download or copy it again"

_UINT32: Final = struct.Struct("<I")
_UINT64: Final = struct.Struct("<Q")
_NUMBERS: Final = dict(enumerate("BbHhIif")) | {10: "Q", 11: "q", 12: "d"}
"""GGUF value type -> struct format."""
_BOOL: Final = 7
_STRING: Final = 8
_ARRAY: Final = 9
_MAX_ELEMENTS: Final = 2**24
"""Of one array: sixty times the largest vocabulary in use."""
_MAX_NAME_BYTES: Final = 1_000
"""Of a key or a tensor's name; the longest in use have about sixty."""


class Cursor:
    """A position in a mapped file.

    Every length is checked against the bytes that are left before anything is read or allocated.

    Raises:
        InputError: from every method, naming the part of the header that is wrong.
    """

    __slots__ = ("_data", "_size", "offset", "where")

    def __init__(self, data: mmap.mmap, where: str) -> None:
        self._data = data
        self._size = len(data)
        self.where = where
        self.offset = 0

    def uint32(self, part: str) -> int:
        start = self._advance(4, part)
        return int(_UINT32.unpack_from(self._data, start)[0])

    def uint64(self, part: str) -> int:
        start = self._advance(8, part)
        return int(_UINT64.unpack_from(self._data, start)[0])

    def count(self, part: str, bytes_each: int) -> int:
        """A number of things that take at least `bytes_each` bytes of the rest of the file."""
        value = self.uint64(part)
        left = self._size - self.offset
        if value * bytes_each > left:
            raise self.broken(f"{part} is {value}, which does not fit in the {left} bytes left")
        return value

    def name(self, part: str) -> str:
        """A string that names something: short."""
        return self._text(part, _MAX_NAME_BYTES)

    def value(self, part: str) -> MetadataValue:
        """A metadata value: its type, then a scalar, a string or an array of either."""
        kind = self.uint32(f"the type of {part}")
        if kind != _ARRAY:
            return self._values(kind, 1, part)[0]
        kind = self.uint32(f"the element type of {part}")
        number = self.count(f"the length of {part}", 1)
        if number > _MAX_ELEMENTS:
            raise self.broken(f"{part} has {number} elements, more than {_MAX_ELEMENTS}")
        return self._values(kind, number, part)

    def broken(self, what: str) -> InputError:
        return InputError(f"{self.where} is not a usable GGUF file: {what}", remedy=DAMAGED)

    def _values(self, kind: int, number: int, part: str) -> tuple[MetadataScalar, ...]:
        if kind == _STRING:
            return tuple(self._text(part, self._size) for _ in range(number))
        if kind == _BOOL:
            return self._flags(number, part)
        code = _NUMBERS.get(kind)
        if code is None:
            raise self.broken(f"{part} has the unknown type {kind}")
        layout = struct.Struct(f"<{number}{code}")
        return layout.unpack_from(self._data, self._advance(layout.size, part))

    def _flags(self, number: int, part: str) -> tuple[bool, ...]:
        start = self._advance(number, part)
        stored = self._data[start : self.offset]
        if stored.strip(b"\0\1"):
            raise self.broken(f"{part} is a flag that is neither 0 nor 1")
        return tuple(byte == 1 for byte in stored)

    def _text(self, part: str, max_bytes: int) -> str:
        length = self.uint64(part)
        if length > max_bytes:
            raise self.broken(f"{part} claims to be {length} bytes long")
        start = self._advance(length, part)
        try:
            return self._data[start : self.offset].decode()
        except UnicodeDecodeError as error:
            raise self.broken(f"{part} is not UTF-8") from error

    def _advance(self, size: int, part: str) -> int:
        start = self.offset
        if size > self._size - start:
            raise self.broken(f"it ends within {part}")
        self.offset = start + size
        return start
