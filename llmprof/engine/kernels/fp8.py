"""float8_e4m3fn in LLVM IR: 1 sign bit, 4 exponent bits (bias 7), 3 mantissa bits, no infinity.

Source: Micikevicius et al. 2022, "FP8 formats for deep learning", table 1.
"""

from typing import Any, Final

from llvmlite import ir

from llmprof.engine.kernels.vector_ir import F16, F32, I8, I16, I32, VectorCode
from llmprof.engine.kernels.vector_math import smaller, unary

LARGEST: Final = 448.0

FP16_SCALE: Final = 2.0**8
"""float16 has the same bits in the same places with a larger bias: `load_fp8` leaves this factor out."""

_SIGN: Final = 0x80
_MAGNITUDE: Final = 0x7F
_MANTISSA_SHIFT: Final = 23 - 3
_FP16_SHIFT: Final = 10 - 3
_BIAS_CHANGE: Final = 127 - 7
_SUBNORMAL_STEP: Final = 2.0**-9
_SMALLEST_NORMAL_VALUE: Final = 2.0**-6


def load_fp8(code: VectorCode, pointer: Any, index: Any) -> Any:
    """`code.lanes` numbers from `pointer[index]` (i8*) on as float32, divided by `FP16_SCALE`.

    Exact for every finite number; the caller puts the factor where it costs nothing. Needs F16C on
    x86.
    """
    builder, half_words = code.builder, code.vector_of(I16)

    def everywhere(bits: int) -> Any:
        return ir.Constant(half_words, [bits] * code.lanes)

    bits = builder.zext(code.load_raw(pointer, index), half_words)
    magnitude = builder.and_(bits, everywhere(_MAGNITUDE))
    magnitude = builder.shl(magnitude, everywhere(_FP16_SHIFT))
    sign = builder.shl(builder.and_(bits, everywhere(_SIGN)), everywhere(8))
    halves = builder.bitcast(builder.or_(magnitude, sign), code.vector_of(F16))
    return builder.fpext(halves, code.vector_of(F32))


def store_fp8(code: VectorCode, vector: Any, pointer: Any, index: Any) -> None:
    """Round float32 to nearest even, limit it to 448, and store it from `pointer[index]` (i8*) on."""
    builder = code.builder
    size = smaller(code, unary(code, "llvm.fabs", vector), code.splat(LARGEST))
    bits = code.f32_to_bits(size)
    odd = builder.and_(code.shift_right(bits, _MANTISSA_SHIFT), code.splat_bits(1))
    half = code.splat_bits((1 << (_MANTISSA_SHIFT - 1)) - 1)
    rounded = code.shift_right(builder.add(bits, builder.add(odd, half)), _MANTISSA_SHIFT)
    normal = builder.sub(rounded, code.splat_bits(_BIAS_CHANGE << 3))
    steps = unary(code, "llvm.rint", code.mul(size, code.splat(1 / _SUBNORMAL_STEP)))
    subnormal = builder.fptosi(steps, code.vector_of(I32))
    is_subnormal = builder.fcmp_ordered("<", size, code.splat(_SMALLEST_NORMAL_VALUE))
    magnitude = builder.select(is_subnormal, subnormal, normal)
    sign = code.shift_right(code.f32_to_bits(vector), 24)
    sign = builder.and_(sign, code.splat_bits(_SIGN))
    stored = builder.trunc(builder.or_(magnitude, sign), code.vector_of(I8))
    code.store_raw(stored, pointer, index)
