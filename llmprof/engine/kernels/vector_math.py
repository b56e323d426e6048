"""Functions of float32 vectors that LLVM would hand to a scalar library, and loops with tails."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from llvmlite import ir

from llmprof.engine.kernels.native import cpu_features
from llmprof.engine.kernels.vector_ir import F32, I32, LANES, VectorCode, index_constant

_EXP2: Final = (
    1.0,
    0.6931472028551281,
    0.24022647913619596,
    0.05550332471027366,
    0.009618437358310344,
    0.00133988744452014,
    0.00015353361809780725,
)
"""2^f on [-1/2, 1/2], constant term first: least largest relative error (2e-9) of this degree."""
_SHORT_EXP2: Final = (0.99992807, 0.69326099, 0.24261112, 0.05517167)
"""As `_EXP2`, least largest relative error (7.5e-5) of this degree."""
_MANTISSA_BITS: Final = 23
_ROUNDS_TO_WHOLE: Final = 1.5 * 2**23
"""Added to a small number, leaves it as a whole one in the low bits."""
_SMALLEST_EXPONENT: Final = -100.0
_LARGEST_EXPONENT: Final = 127.0

_GUESS: Final = "llvm.x86.avx512.rcp14.ps.512"
_GELU_CUBIC: Final = 0.044715

LOG2_E: Final = 1 / math.log(2)

Emit = Callable[[VectorCode, Any], None]
"""Emits the work on `code.lanes` elements from an index on."""
Term = Callable[[VectorCode, Any], Any]
"""Emits a vector of `code.lanes` float32 from an index on."""
Join = Callable[[VectorCode, Any, Any], Any]
"""Emits one vector from two."""


def exp2(code: VectorCode, x: Any) -> Any:
    """2^x per lane to float32's accuracy; x is limited to -100 ... 127.

    The whole part goes into the exponent bits, a polynomial gives the rest. What is smaller than
    2^-100 becomes 2^-100: no sum of probabilities notices, and what they are multiplied with next
    does not become subnormal, which is slow.
    """
    builder = code.builder
    x = larger(code, x, code.splat(_SMALLEST_EXPONENT))
    x = smaller(code, x, code.splat(_LARGEST_EXPONENT))
    whole = unary(code, "llvm.rint", x)
    part = builder.fsub(x, whole)
    power = code.splat(_EXP2[-1])
    for coefficient in reversed(_EXP2[:-1]):
        power = code.fma(power, part, code.splat(coefficient))
    exponent = code.shift_left(builder.fptosi(whole, code.vector_of(I32)), _MANTISSA_BITS)
    return code.bits_to_f32(builder.add(code.f32_to_bits(power), exponent))


def short_exp2(code: VectorCode, x: Any) -> Any:
    """2^x per lane, for x of at most 0, to the accuracy that bf16 needs: at a fifth less cost."""
    builder = code.builder
    x = larger(code, x, code.splat(_SMALLEST_EXPONENT))
    shifted = code.add(x, code.splat(_ROUNDS_TO_WHOLE))
    part = builder.fsub(x, builder.fsub(shifted, code.splat(_ROUNDS_TO_WHOLE)))
    power = code.splat(_SHORT_EXP2[-1])
    for coefficient in reversed(_SHORT_EXP2[:-1]):
        power = code.fma(power, part, code.splat(coefficient))
    exponent = code.shift_left(code.f32_to_bits(shifted), _MANTISSA_BITS)
    return code.bits_to_f32(builder.add(code.f32_to_bits(power), exponent))


def reciprocal(code: VectorCode, x: Any) -> Any:
    """1 / x per lane for normal x up to 2^125, to a unit or two in the last place.

    A division of 16 floats occupies an AVX-512 core for 16 cycles, a guess and Newton's step for 5.
    """
    if code.lanes != LANES or "avx512f" not in cpu_features():
        return code.builder.fdiv(code.splat(1.0), x)
    everywhere = ir.Constant(ir.IntType(code.lanes), -1)
    guess = code.call(_GUESS, x.type, [x, code.splat(0.0), everywhere])
    error = code.fma(code.builder.fneg(x), guess, code.splat(1.0))
    return code.fma(guess, error, guess)


def silu(code: VectorCode, x: Any) -> Any:
    """X / (1 + e^-x) per lane."""
    decay = exp2(code, code.mul(x, code.splat(-LOG2_E)))
    return code.mul(x, reciprocal(code, code.add(decay, code.splat(1.0))))


def gelu_tanh(code: VectorCode, x: Any) -> Any:
    """X / 2 * (1 + tanh(u)) = x / (1 + e^-2u) per lane, u = sqrt(2 / pi) (x + 0.044715 x^3).

    Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units", section 2.
    """
    cubic = code.fma(code.mul(x, x), code.splat(_GELU_CUBIC), code.splat(1.0))
    exponent = code.mul(code.mul(x, cubic), code.splat(-2 * LOG2_E * math.sqrt(2 / math.pi)))
    return code.builder.fdiv(x, code.add(exp2(code, exponent), code.splat(1.0)))


def capped(code: VectorCode, doubled: Any, cap: float) -> Any:
    """Cap * tanh(s / cap) per lane, as cap - 2 cap / (1 + e^(2s / cap)); `doubled` is 2s / cap * log2 e."""
    power = code.add(exp2(code, doubled), code.splat(1.0))
    return code.builder.fsub(code.splat(cap), code.builder.fdiv(code.splat(2 * cap), power))


def larger(code: VectorCode, a: Any, b: Any) -> Any:
    """Per lane; b if one of them is a NaN. One instruction, where `VectorCode.maximum` takes three."""
    return code.builder.select(code.builder.fcmp_ordered(">", a, b), a, b)


def smaller(code: VectorCode, a: Any, b: Any) -> Any:
    """Per lane; b if one of them is a NaN."""
    return code.builder.select(code.builder.fcmp_ordered("<", a, b), a, b)


def unary(code: VectorCode, name: str, x: Any) -> Any:
    """One of LLVM's functions of a float per lane: `llvm.sqrt`, `llvm.rint`, `llvm.fabs`."""
    return code.call(f"{name}.v{code.lanes}f32", code.vector_of(F32), [x])


def join_lanes(code: VectorCode, vector: Any, count: int, join: Join) -> Any:
    """Join every `count` (a power of two) neighbouring lanes; each of them holds the result."""
    distance = 1
    while distance < count:
        order = [lane ^ distance for lane in range(code.lanes)]
        vector = join(code, vector, shuffled(code, vector, vector, order))
        distance *= 2
    return vector


def shuffled(code: VectorCode, first: Any, second: Any, order: Sequence[int]) -> Any:
    """Lanes of two vectors, counted through, in a new order."""
    mask = ir.Constant(ir.VectorType(I32, len(order)), list(order))
    return code.builder.shuffle_vector(first, second, mask)


def join_all(code: VectorCode, vectors: Sequence[Any], join: Join) -> Any:
    """One vector from many, pairwise, so that no chain is longer than it must be."""
    while len(vectors) > 1:
        pairs = [join(code, a, b) for a, b in zip(vectors[::2], vectors[1::2], strict=False)]
        vectors = pairs + list(vectors[len(pairs) * 2 :])
    return vectors[0]


def for_each(code: VectorCode, count: int, emit: Emit) -> None:
    """Work on elements 0 ... count - 1: whole vectors first, then the rest one by one."""
    whole = count // LANES * LANES
    if whole:
        with code.loop(index_constant(0), index_constant(whole), LANES) as loop:
            emit(code, loop.index)
    if whole < count:
        with code.loop(index_constant(whole), index_constant(count), 1) as loop:
            emit(VectorCode(code.builder, lanes=1), loop.index)


def total(code: VectorCode, count: int, term: Term) -> Any:
    """The sum of `term` over elements 0 ... count - 1, in a vector of one lane."""
    return _reduced(code, count, term, 0.0, VectorCode.add)


def largest(code: VectorCode, count: int, term: Term, *, least: float) -> Any:
    """The largest `term` over elements 0 ... count - 1, or `least`, in a vector of one lane."""
    return _reduced(code, count, term, least, larger)


def _reduced(code: VectorCode, count: int, term: Term, start: float, join: Join) -> Any:
    whole = count // LANES * LANES
    with code.loop(index_constant(0), index_constant(whole), LANES, [code.splat(start)]) as loop:
        loop.carried[0] = join(code, loop.carried[0], term(code, loop.index))
    everywhere = join_lanes(code, loop.results[0], LANES, join)
    result = shuffled(code, everywhere, everywhere, [0])
    single = VectorCode(code.builder, lanes=1)
    with code.loop(index_constant(whole), index_constant(count), 1, [result]) as loop:
        loop.carried[0] = join(single, loop.carried[0], term(single, loop.index))
    return loop.results[0]


def scalar_of(code: VectorCode, vector: Any, lane: int = 0) -> Any:
    return code.builder.extract_element(vector, ir.Constant(I32, lane))
