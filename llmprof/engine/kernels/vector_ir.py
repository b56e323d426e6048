"""Vector code for CPU kernels, written as LLVM IR: what a compiler's vectoriser does not find.

A kernel is a loop nest built with an `llvmlite.ir.IRBuilder`, in which `VectorCode` supplies loads
that widen to float32, arithmetic, loops with values carried in registers, and prefetches. The IR is
portable: LLVM splits a vector of 16 floats into what the machine has (one AVX-512 register, two of
AVX2, four of NEON). With `lanes=1` the same code is scalar, which is how tails are written.

Two ways to run it, which can be mixed:

- `llmprof.engine.kernels.native` compiles a whole function of IR in milliseconds and runs it on the
  threads of torch's own pool;
- inside a function that numba compiles, by an `@numba.extending.intrinsic` whose code generator
  gets the builder: `VectorCode(builder)`.

Pointers are typed as llvmlite types them (`i16*` for 16-bit weights); an index counts elements.
"""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import llvmlite.binding as llvm
from llvmlite import ir

LANES: Final = 16
"""Floats per vector: one AVX-512 register."""

F32: Final = ir.FloatType()
F16: Final = ir.HalfType()
I8: Final = ir.IntType(8)
I16: Final = ir.IntType(16)
I32: Final = ir.IntType(32)
I64: Final = ir.IntType(64)


class BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's `bfloat`, which llvmlite does not know; only to name what an intrinsic returns."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat)

    def __hash__(self) -> int:
        return hash(BFloat)


STORED_TYPES: Final[dict[str, Any]] = {"fp32": F32, "bf16": I16, "fp16": F16, "int8": I8}
"""Element type of a pointer to numbers of a dtype; `VectorCode.load` widens each to float32."""


@dataclass(slots=True)
class Loop:
    """A counted loop while it is being built; see `VectorCode.loop`."""

    index: Any
    carried: list[Any]
    """On entry to the body: the values so far. Put the next ones here before the body ends."""
    results: list[Any] = field(default_factory=list)
    """After the loop: the values as the last turn left them (the initial ones if there was none)."""


@dataclass(frozen=True, slots=True)
class VectorCode:
    """Emits code for vectors of `lanes` float32 at the builder's position."""

    builder: Any
    """An `llvmlite.ir.IRBuilder`."""
    lanes: int = LANES

    def vector_of(self, element: Any) -> Any:
        """The type of `lanes` such elements."""
        return ir.VectorType(element, self.lanes)

    def splat(self, number: float) -> Any:
        """A constant float32 in every lane."""
        return ir.Constant(self.vector_of(F32), [number] * self.lanes)

    def splat_bits(self, bits: int) -> Any:
        """A constant 32-bit integer in every lane."""
        return ir.Constant(self.vector_of(I32), [bits] * self.lanes)

    def broadcast(self, scalar: Any) -> Any:
        """One value of any type in every lane."""
        vector = ir.Constant(self.vector_of(scalar.type), ir.Undefined)
        vector = self.builder.insert_element(vector, scalar, ir.Constant(I32, 0))
        everywhere = ir.Constant(self.vector_of(I32), [0] * self.lanes)
        return self.builder.shuffle_vector(vector, vector, everywhere)

    def load(self, pointer: Any, index: Any, dtype: str) -> Any:
        """`lanes` numbers of dtype fp32, bf16, fp16 or int8 from `pointer[index]` on, as float32.

        No alignment beyond that of one element is assumed. fp16 needs F16C on x86.
        """
        raw = self.load_raw(pointer, index)
        match dtype:
            case "fp32":
                return raw
            case "bf16":  # the upper half of a float32
                return self.bits_to_f32(self.shift_left(self.zero_extend(raw), 16))
            case "fp16":
                return self.builder.fpext(raw, self.vector_of(F32))
            case "int8":
                wide = self.builder.sext(raw, self.vector_of(I32))
                return self.builder.sitofp(wide, self.vector_of(F32))
            case _:
                raise ValueError(f"no load for {dtype}")

    def load_raw(self, pointer: Any, index: Any) -> Any:
        """`lanes` elements as they are stored."""
        address = self._vector_address(pointer, index)
        loaded = self.builder.load(address)
        loaded.align = _element_bytes(pointer)
        return loaded

    def store(self, vector: Any, pointer: Any, index: Any, dtype: str) -> None:
        """`lanes` float32 to `pointer[index]` on, rounded to fp32, bf16 or fp16."""
        self.store_raw(self.narrow(vector, dtype), pointer, index)

    def store_raw(self, elements: Any, pointer: Any, index: Any) -> None:
        """`lanes` elements as they are."""
        stored = self.builder.store(elements, self._vector_address(pointer, index))
        stored.align = _element_bytes(pointer)

    def narrow(self, vector: Any, dtype: str) -> Any:
        """float32 as numbers of dtype fp32, bf16 or fp16 are stored (round to nearest even)."""
        match dtype:
            case "fp32":
                return vector
            case "bf16":
                return self._round_to_bf16(vector)
            case "fp16":
                return self.builder.fptrunc(vector, self.vector_of(F16))
            case _:
                raise ValueError(f"no store for {dtype}")

    def zero_extend(self, integers: Any) -> Any:
        """Narrow unsigned integers to 32 bits."""
        return self.builder.zext(integers, self.vector_of(I32))

    def shift_left(self, integers: Any, bits: int) -> Any:
        return self.builder.shl(integers, self.splat_bits(bits))

    def shift_right(self, integers: Any, bits: int) -> Any:
        """Zeros come in from above."""
        return self.builder.lshr(integers, self.splat_bits(bits))

    def bits_to_f32(self, bits: Any) -> Any:
        """The float32 whose bit patterns these 32-bit integers are."""
        return self.builder.bitcast(bits, self.vector_of(F32))

    def f32_to_bits(self, vector: Any) -> Any:
        return self.builder.bitcast(vector, self.vector_of(I32))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """A * b + c, fused where the machine can."""
        return self.call(f"llvm.fmuladd.{_suffix(a.type)}", a.type, [a, b, c])

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b)

    def mul(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(a, b)

    def maximum(self, a: Any, b: Any) -> Any:
        """Per lane; of a number and a NaN, the number."""
        return self.call(f"llvm.maxnum.{_suffix(a.type)}", a.type, [a, b])

    def sum(self, vector: Any) -> Any:
        """Of all lanes, in the order that is fastest, as a scalar float."""
        return self._reduce("llvm.vector.reduce.fadd", [ir.Constant(F32, -0.0), vector])

    def largest(self, vector: Any) -> Any:
        """Of all lanes, as a scalar float."""
        return self._reduce("llvm.vector.reduce.fmax", [vector])

    def sums(self, vectors: Sequence[Any]) -> Any:
        """A vector whose lane i is the sum of the lanes of `vectors[i]`; at most `lanes` of them.

        All are folded at once, halving and joining pairs, in 3 operations per vector instead of the
        2 log2(lanes) that each would take alone. The result has a power of two of lanes; those
        beyond the given ones are zero.
        """
        count = 1 << (len(vectors) - 1).bit_length()
        folded = [*vectors, *[self.splat(0.0)] * (count - len(vectors))]
        width = self.lanes  # of the part of a vector that belongs to one sum
        while len(folded) > 1:
            width //= 2
            pairs = zip(folded[::2], folded[1::2], strict=True)
            folded = [self._fold(first, second, width) for first, second in pairs]
        while width > 1:
            width //= 2
            folded = [self._fold(folded[0], None, width)]
        return folded[0]

    def transposed(self, rows: Sequence[Any]) -> list[Any]:
        """Column i of as many rows as there are lanes; what is not used of it costs nothing."""
        rows, distance = list(rows), 1
        while distance < self.lanes:
            for first in (row for row in range(self.lanes) if not row & distance):
                second = first + distance
                rows[first], rows[second] = self._swapped(rows[first], rows[second], distance)
            distance *= 2
        return rows

    def prefetch(self, pointer: Any, index: Any, level: int = 1, *, to_write: bool = False) -> None:
        """Fetch the cache line of `pointer[index]`; any address is allowed.

        `level`: 1, 2 or 3, the innermost cache that keeps it.
        """
        line = self.builder.bitcast(self.builder.gep(pointer, [index]), I8.as_pointer())
        function = self._function("llvm.prefetch.p0", ir.VoidType(), [line.type, I32, I32, I32])
        flags = (int(to_write), 4 - level, 1)  # the last: of data, not of instructions
        self.builder.call(function, [line, *(ir.Constant(I32, flag) for flag in flags)])

    @contextmanager
    def loop(self, start: Any, stop: Any, step: int, carried: Sequence[Any] = ()) -> Iterator[Loop]:
        """Build `for index in range(start, stop, step)` over 64-bit integers.

        Values that change from turn to turn stay in registers:

            with code.loop(start, stop, 16, [code.splat(0.0)]) as loop:
                loop.carried[0] = code.fma(weights, x, loop.carried[0])
            total = code.sum(loop.results[0])
        """
        builder = self.builder
        before = builder.block
        head = builder.append_basic_block("loop.head")
        body = builder.append_basic_block("loop.body")
        after = builder.append_basic_block("loop.after")
        builder.branch(head)

        builder.position_at_end(head)
        index = builder.phi(I64)
        phis = [builder.phi(value.type) for value in carried]
        for phi, value in zip([index, *phis], [start, *carried], strict=True):
            phi.add_incoming(value, before)
        builder.cbranch(builder.icmp_signed("<", index, stop), body, after)

        builder.position_at_end(body)
        loop = Loop(index, list(phis))
        yield loop
        following = builder.add(index, ir.Constant(I64, step))
        for phi, value in zip([index, *phis], [following, *loop.carried], strict=True):
            phi.add_incoming(value, builder.block)
        builder.branch(head)

        builder.position_at_end(after)
        loop.results = list(phis)

    def _vector_address(self, pointer: Any, index: Any) -> Any:
        first = self.builder.gep(pointer, [index])
        return self.builder.bitcast(first, self.vector_of(pointer.type.pointee).as_pointer())

    def _swapped(self, a: Any, b: Any, distance: int) -> tuple[Any, Any]:
        """Exchange the lanes of a with this bit of their number for those of b without it."""
        kept, moved = [], []
        for lane in range(self.lanes):
            high = lane & distance
            kept.append(self.lanes + lane - distance if high else lane)
            moved.append(self.lanes + lane if high else lane + distance)
        kind = self.vector_of(I32)
        return (
            self.builder.shuffle_vector(a, b, ir.Constant(kind, kept)),
            self.builder.shuffle_vector(a, b, ir.Constant(kind, moved)),
        )

    def _fold(self, first: Any, second: Any | None, width: int) -> Any:
        """Add the halves, `width` lanes each, of every part; of two vectors joined, or of one."""
        lanes = first.type.count * (1 if second is None else 2)
        second = first if second is None else second
        lower = [lane for lane in range(lanes) if not lane & width]
        halves = (
            self.builder.shuffle_vector(
                first,
                second,
                ir.Constant(ir.VectorType(I32, len(lower)), [lane + by for lane in lower]),
            )
            for by in (0, width)
        )
        return self.builder.fadd(*halves)

    def _round_to_bf16(self, vector: Any) -> Any:
        """Add half of the last kept bit, less one if that bit is even; a NaN stays one.

        Intel's instruction does so too, but takes subnormal numbers for zero.
        """
        if self.lanes == LANES and _rounds_to_bf16():
            words = ir.VectorType(BFloat(), LANES)
            narrow = self.call("llvm.x86.avx512bf16.cvtneps2bf16.512", words, [vector])
            return self.builder.bitcast(narrow, self.vector_of(I16))
        builder, bits = self.builder, self.f32_to_bits(vector)
        odd = builder.and_(self.shift_right(bits, 16), self.splat_bits(1))
        rounded = builder.add(bits, builder.add(odd, self.splat_bits(0x7FFF)))
        quiet = builder.or_(bits, self.splat_bits(0x0040_0000))
        is_nan = builder.fcmp_unordered("uno", vector, vector)
        kept = self.shift_right(builder.select(is_nan, quiet, rounded), 16)
        return builder.trunc(kept, self.vector_of(I16))

    def _reduce(self, name: str, arguments: Sequence[Any]) -> Any:
        vector = self.vector_of(F32)
        types = [argument.type for argument in arguments]
        function = self._function(f"{name}.{_suffix(vector)}", F32, types)
        return self.builder.call(function, arguments, fastmath=("reassoc",))

    def call(self, name: str, returned: Any, arguments: Sequence[Any]) -> Any:
        """An LLVM intrinsic by its full name (`llvm.fmuladd.v16f32`)."""
        function = self._function(name, returned, [argument.type for argument in arguments])
        return self.builder.call(function, arguments)

    def _function(self, name: str, returned: Any, arguments: Sequence[Any]) -> Any:
        """An LLVM intrinsic, declared once per module."""
        module = self.builder.module
        if name in module.globals:
            return module.globals[name]
        return ir.Function(module, ir.FunctionType(returned, arguments), name)


@functools.cache
def _rounds_to_bf16() -> bool:
    features = llvm.get_host_cpu_features()
    return bool(features.get("avx512bf16")) and bool(features.get("avx512f"))


def index_constant(value: int) -> Any:
    return ir.Constant(I64, value)


def _suffix(vector: Any) -> str:
    """How LLVM's overloaded intrinsics spell a vector of floats: `v16f32`."""
    return f"v{vector.count}f32"


def _element_bytes(pointer: Any) -> int:
    element = pointer.type.pointee
    if isinstance(element, ir.IntType):
        width: int = element.width
        return width // 8
    return 2 if isinstance(element, ir.HalfType) else 4
