"""Inside a kernel: from stored bytes to the numbers that scales turn into weights.

Integers become floats by their bits, not by a conversion, which a GPU does at a quarter to a
sixteenth of the rate of its arithmetic: 0x4B000000 | c is the float32 2^23 + c.
"""

import triton
import triton.language as tl

UNIT_BYTES = 16
"""Of codes that one thread loads at once: 32 codes of int4, 16 of int8 or fp8."""


@triton.jit
def _plus_2_23(bits):  # type: ignore[no-untyped-def]
    return (bits.to(tl.int32) | 0x4B000000).to(tl.float32, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]
def low_codes(stored, zero: tl.constexpr):  # type: ignore[no-untyped-def]
    """int4: of bytes, the low halves 0 ... 15, less `zero`; float32, exact."""
    return _plus_2_23(stored & 15) - (8388608.0 + zero)


@triton.jit  # type: ignore[untyped-decorator]
def high_codes(stored, zero: tl.constexpr):  # type: ignore[no-untyped-def]
    """As `low_codes`: the high halves stay where they are, sixteen times too large until the end."""
    return (_plus_2_23(stored & 240) - (8388608.0 + 16.0 * zero)) * 0.0625


@triton.jit
def int8_codes(stored):  # type: ignore[no-untyped-def]
    """int8, given as uint8; float32, exact."""
    return _plus_2_23(stored ^ 128) - 8388736.0


@triton.jit  # type: ignore[untyped-decorator]
def fp8_numbers(stored, native: tl.constexpr):  # type: ignore[no-untyped-def]
    """float8_e4m3fn, given as uint8; `native`: by the GPU's own conversion.

    Otherwise through float16, whose exponent has the same place and a bias that is larger by 8.
    """
    if native:
        numbers = stored.to(tl.float8e4nv, bitcast=True).to(tl.float32)
    else:
        bits = stored.to(tl.uint16)
        half = ((bits & 0x80) << 8) | ((bits & 0x7F) << 7)
        numbers = half.to(tl.float16, bitcast=True).to(tl.float32) * 256.0
        numbers = tl.where((bits & 0x7F) == 0x7F, float("nan"), numbers)
    return numbers


@triton.jit  # type: ignore[untyped-decorator]
def byte_codes(stored, is_fp8: tl.constexpr, native_fp8: tl.constexpr):  # type: ignore[no-untyped-def]
    """int8, or with `is_fp8` float8_e4m3fn (see `fp8_numbers`), given as uint8; float32, exact."""
    return fp8_numbers(stored, native_fp8) if is_fp8 else int8_codes(stored)
