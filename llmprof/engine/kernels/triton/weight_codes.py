"""Inside a kernel: from stored bytes to the numbers that scales turn into weights.

Integers become floats by their bits, not by a conversion, which a GPU does at a quarter to a
sixteenth of the rate of its arithmetic: 0x4B000000 | c is the float32 2^23 + c.
"""

import os

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


PTX: tl.constexpr = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1")
"""Whether kernels become machine code: Triton's interpreter knows no assembly, and does arithmetic."""


@triton.jit  # type: ignore[untyped-decorator]
def _floats_of_bytes(words, top: tl.constexpr, second: tl.constexpr):  # type: ignore[no-untyped-def]
    """A float32 of each byte of words [rows, n] of int32, in their order: [rows, 4 n].

    Its bits are `top`, then the byte and two zeros with `second`, else two zeros and the byte. That is one
    instruction per byte, `prmt`, which takes any bytes of two registers (PTX ISA); a byte that is taken
    out first, masked and joined with a constant takes four.
    """
    if PTX:
        asm: tl.constexpr = (
            """
            prmt.b32 $0, $4, 0x3f000000, 0x7055;
            prmt.b32 $1, $4, 0x3f000000, 0x7155;
            prmt.b32 $2, $4, 0x3f000000, 0x7255;
            prmt.b32 $3, $4, 0x3f000000, 0x7355;
            """
            if second
            else """
            prmt.b32 $0, $4, 0x4b000000, 0x7650;
            prmt.b32 $1, $4, 0x4b000000, 0x7651;
            prmt.b32 $2, $4, 0x4b000000, 0x7652;
            prmt.b32 $3, $4, 0x4b000000, 0x7653;
            """
        )
        b0, b1, b2, b3 = tl.inline_asm_elementwise(
            asm,
            "=r,=r,=r,=r,r",
            [words],
            dtype=(tl.int32, tl.int32, tl.int32, tl.int32),
            is_pure=True,
            pack=1,
        )
    else:
        shift: tl.constexpr = 16 if second else 0
        b0 = ((words & 255) << shift) | (top << 24)
        b1 = (((words >> 8) & 255) << shift) | (top << 24)
        b2 = (((words >> 16) & 255) << shift) | (top << 24)
        b3 = (((words >> 24) & 255) << shift) | (top << 24)
    pairs = tl.join(tl.join(b0, b2), tl.join(b1, b3))
    bits = tl.reshape(pairs, (words.shape[0], 4 * words.shape[1]))
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def half_and_low_codes(words):  # type: ignore[no-untyped-def]
    """int4: of words [rows, n] of 4 bytes, (128 + code) / 256 of the low halves, float32 [rows, 4 n].

    A product sums them as they are and takes the halves away once for all: an addition per code less.
    Of its 24 bits the sum loses 4 to the halves, and is rounded to 8 or 11.
    """
    return _floats_of_bytes(words & 0x0F0F0F0F, 0x3F, True)


@triton.jit
def half_and_high_codes(words):  # type: ignore[no-untyped-def]
    """As `half_and_low_codes`, of the high halves."""
    return _floats_of_bytes((words >> 4) & 0x0F0F0F0F, 0x3F, True)


@triton.jit
def int8_codes_of_words(words):  # type: ignore[no-untyped-def]
    """int8: of words [rows, n] of 4 codes, float32 [rows, 4 n], exact."""
    return _floats_of_bytes(words ^ -0x7F7F7F80, 0x4B, False) - 8388736.0


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
