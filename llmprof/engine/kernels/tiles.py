"""Intel AMX in LLVM IR: products of 16 x 32 by 32 x 16 bf16 numbers, one instruction each.

One core multiplies 16 times as much as with vectors of float32, so that a weight that arrives from
memory can be multiplied by 16 rows of activations before the next one is there.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.
"""

import ctypes
import functools
import platform
from dataclasses import dataclass
from typing import Any, Final

from llvmlite import ir

from llmprof.engine.kernels.native import cpu_features
from llmprof.engine.kernels.vector_ir import I8, I64, VectorCode, index_constant

TILE_ROWS: Final = 16
TILE_COLUMNS: Final = 32
"""bf16 numbers in a row of a left-hand tile."""
ROW_BYTES: Final = 64

_CONFIG_BYTES: Final = 64
_PALETTE: Final = 1
_FIRST_ROW_BYTES: Final = 16
"""Offset of the 16-bit row sizes of the 8 tiles."""
_FIRST_ROWS: Final = 48
"""Offset of their 8-bit numbers of rows."""

_ARCH_PRCTL: Final = 158
_REQUEST_PERMISSION: Final = 0x1023
_TILE_DATA: Final = 18


@functools.cache
def tiles_available() -> bool:
    """Whether this CPU has AMX for bf16 and the kernel lets this process use it."""
    if not {"amx-tile", "amx-bf16", "avx512bf16"} <= cpu_features():
        return False
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return False
    refused: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return not refused


@dataclass(frozen=True, slots=True)
class TileShape:
    rows: int
    row_bytes: int


class Tiles:
    """Emits tile instructions, between `begin` and `end` on the same thread.

    Others in the process (oneDNN) configure tiles for themselves and may look at what is there
    before they do: what was configured is put back.
    """

    def __init__(self, code: VectorCode, shapes: dict[int, TileShape]) -> None:
        """`shapes` by number of the tile, 0 to 7."""
        self._code = code
        self._shapes = shapes
        builder = code.builder
        self._config = builder.alloca(I8, size=index_constant(_CONFIG_BYTES))
        self._before = builder.alloca(I8, size=index_constant(_CONFIG_BYTES))
        for memory in (self._config, self._before):
            memory.align = _CONFIG_BYTES

    def begin(self) -> None:
        builder = self._code.builder
        numbers = [0] * _CONFIG_BYTES
        numbers[0] = _PALETTE
        for tile, shape in self._shapes.items():
            numbers[_FIRST_ROW_BYTES + 2 * tile] = shape.row_bytes
            numbers[_FIRST_ROWS + tile] = shape.rows
        for offset, number in enumerate(numbers):
            builder.store(
                ir.Constant(I8, number), builder.gep(self._config, [index_constant(offset)])
            )
        self._call("sttilecfg", self._before)
        self._call("ldtilecfg", self._config)

    def end(self) -> None:
        self._call("ldtilecfg", self._before)

    def zero(self, tile: int) -> None:
        self._call("tilezero", ir.Constant(I8, tile))

    def load(self, tile: int, address: Any, stride_bytes: int) -> None:
        """From rows that lie so far apart; `address` is of any pointer type."""
        self._call("tileloadd64", ir.Constant(I8, tile), self._bytes(address), _i64(stride_bytes))

    def store(self, tile: int, address: Any, stride_bytes: int) -> None:
        self._call("tilestored64", ir.Constant(I8, tile), self._bytes(address), _i64(stride_bytes))

    def multiply_add(self, into: int, left: int, right: int) -> None:
        """C[i, j] += sum over k of A[i, k] B[k, j], in float32.

        Args:
            into: C [16, columns], float32.
            left: A [16, 32], bf16.
            right: B as [16, columns, 2]: row p holds B[2 p, j] and B[2 p + 1, j] side by side.
        """
        tiles = (ir.Constant(I8, tile) for tile in (into, left, right))
        self._call("tdpbf16ps", *tiles)

    def _bytes(self, address: Any) -> Any:
        return self._code.builder.bitcast(address, I8.as_pointer())

    def _call(self, name: str, *arguments: Any) -> None:
        self._code.call(f"llvm.x86.{name}", ir.VoidType(), list(arguments))


def _i64(number: int) -> Any:
    return ir.Constant(I64, number)
