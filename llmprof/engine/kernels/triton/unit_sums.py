"""Of one row of x: what the weights of a program's tile make of it, unit by unit.

A unit is 16 bytes of a row of W, which one thread loads at once.
"""

import triton
import triton.language as tl

from llmprof.engine.kernels.triton.weight_codes import (
    fp8_numbers,
    half_and_high_codes,
    half_and_low_codes,
    int8_codes,
    int8_codes_of_words,
)


@triton.jit  # type: ignore[untyped-decorator]
def unscaled(stored, number: tl.constexpr, native_fp8: tl.constexpr):  # type: ignore[no-untyped-def]
    """Weights but for their scale, where a stored number is one of them; floats as they are."""
    numbers = stored
    if number == "int8":
        numbers = int8_codes(stored)
    if number == "fp8":
        numbers = fp8_numbers(stored, native_fp8)
    return numbers


@triton.jit  # type: ignore[untyped-decorator]
def normed(numbers, gains, k, inside, inverse, offset, norm: tl.constexpr):  # type: ignore[no-untyped-def]
    """Numbers of x as the norm leaves them, in their own dtype; `inverse` has their shape or less."""
    if norm != "none":
        gain = tl.load(gains + k, inside, other=0.0).to(tl.float32) + offset
        numbers = (numbers.to(tl.float32) * inverse * gain).to(numbers.dtype)
    return numbers


@triton.jit  # type: ignore[untyped-decorator]
def _given(x, gains, k, in_features, inverse, offset, norm: tl.constexpr):  # type: ignore[no-untyped-def]
    """Channels k of norm(x), float32; zeros beyond the last."""
    inside = k < in_features
    numbers = tl.load(x + k, inside, other=0.0)
    return normed(numbers, gains, k, inside, inverse, offset, norm).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def _sums_of_units(  # type: ignore[no-untyped-def]
    weights, given, outputs: tl.constexpr, units: tl.constexpr, of_a_unit: tl.constexpr
):
    """Of weights [outputs, units * of_a_unit] times x [units * of_a_unit]: [outputs, units]."""
    products = weights * given[None, :]
    return tl.sum(tl.reshape(products, (outputs, units, of_a_unit)), axis=2)


@triton.jit  # type: ignore[untyped-decorator]
def units_from(  # type: ignore[no-untyped-def]
    codes, out, valid, start, stop, row_length, units: tl.constexpr, lanes: tl.constexpr
):
    """Units `start` up to `stop` of rows `out` of W: [outputs, units * lanes]; zeros after the last.

    A row's part is one line of neighbours: then its units go to the threads side by side, and every
    thread has one of each row. Threads take other rows first where units are a dimension of their own.
    """
    place = start * lanes + tl.arange(0, units * lanes)
    inside = valid[:, None] & ((place < row_length) & (place < stop * lanes))[None, :]
    source = codes + out.to(tl.int64)[:, None] * row_length + place[None, :]
    return tl.load(source, inside, other=0, eviction_policy="evict_first")


@triton.jit  # type: ignore[untyped-decorator]
def sums_of_tile(  # type: ignore[no-untyped-def]
    stored,
    x,
    gains,
    start,
    in_features,
    inverse,
    offset,
    number: tl.constexpr,
    native_fp8: tl.constexpr,
    zero: tl.constexpr,
    norm: tl.constexpr,
    outputs: tl.constexpr,
    units: tl.constexpr,
    of_a_unit: tl.constexpr,
    by_words: tl.constexpr,
):
    """Codes or weights `stored` of the units from `start` on, times norm(x).

    Returns:
        Of each row and unit [outputs, units], and of x alone [1, units]: float32, not scaled.
    """
    exact: tl.constexpr = x.dtype.element_ty == tl.float32
    width: tl.constexpr = units * of_a_unit
    if number == "int4":
        k = (start + tl.arange(0, width) // 16) * 32 + tl.arange(0, width) % 16
        given = _given(x, gains, k, in_features, inverse, offset, norm)
        high = _given(x, gains, k + 16, in_features, inverse, offset, norm)
        lows, highs = half_and_low_codes(stored), half_and_high_codes(stored)
        if exact:
            lows, highs = lows - 0.5, highs - 0.5
        sums = _sums_of_units(lows, given, outputs, units, of_a_unit)
        sums += _sums_of_units(highs, high, outputs, units, of_a_unit)
        given += high
        of_x = tl.sum(tl.reshape(given, (1, units, of_a_unit)), axis=2)
        sums = 256.0 * sums - (zero if exact else zero + 128.0) * of_x
    else:
        k = start * of_a_unit + tl.arange(0, width)
        given = _given(x, gains, k, in_features, inverse, offset, norm)
        if by_words:
            weights = int8_codes_of_words(stored)
        else:
            weights = unscaled(stored, number, native_fp8).to(tl.float32)
        sums = _sums_of_units(weights, given, outputs, units, of_a_unit)
        of_x = tl.sum(tl.reshape(given, (1, units, of_a_unit)), axis=2)
    return sums, of_x
