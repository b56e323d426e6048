"""As `fused_matvec.fused_one_row`, for 2 to 16 rows of x: on tensor cores.

W^T is the left factor: its outputs fill the tiles of tensor cores, the rows of x need not. Weights
are rounded to the dtype of x first, as unpacking does.
"""

import triton
import triton.language as tl

from llmprof.engine.kernels.triton.fused_matvec import (
    inverse_rms,
    join_and_finish,
    rows_of_weights,
    scales_of,
)
from llmprof.engine.kernels.triton.unit_sums import normed, unscaled
from llmprof.engine.kernels.triton.weight_codes import high_codes, low_codes


@triton.jit  # type: ignore[untyped-decorator]
def _times_rows(  # type: ignore[no-untyped-def]
    weights,
    x,
    gains,
    k,
    inverse,
    rows,
    in_features,
    offset,
    norm: tl.constexpr,
    padded_rows: tl.constexpr,
):
    """Weights [outputs, width] times norm(x)^T, of the channels k [width]: [outputs, padded_rows]."""
    row = tl.arange(0, padded_rows)
    inside = (row < rows)[:, None] & (k < in_features)[None, :]
    given = tl.load(x + row[:, None] * in_features + k[None, :], inside, other=0.0)
    given = normed(
        given, gains, k[None, :], (k < in_features)[None, :], inverse[:, None], offset, norm
    )
    return tl.dot(weights.to(given.dtype), tl.trans(given), input_precision="ieee")


@triton.jit  # type: ignore[untyped-decorator]
def fused_dots(  # type: ignore[no-untyped-def]
    x,
    squares,
    gains,
    codes,
    scales,
    minimums,
    bias,
    y,
    new_squares,
    parts,
    counters,
    num_squares,
    rows,
    in_features,
    out_features,
    row_length,
    groups,
    units_per_split,
    splits,
    eps,
    offset,
    number: tl.constexpr,
    native_fp8: tl.constexpr,
    zero: tl.constexpr,
    norm: tl.constexpr,
    has_minimums: tl.constexpr,
    has_bias: tl.constexpr,
    adds: tl.constexpr,
    gate: tl.constexpr,
    whole: tl.constexpr,
    most_splits: tl.constexpr,
    scales_rows: tl.constexpr,
    units_per_group: tl.constexpr,
    padded_rows: tl.constexpr,
    outputs: tl.constexpr,
    units: tl.constexpr,
    lanes: tl.constexpr,
    by_words: tl.constexpr,
    norm_block: tl.constexpr,
):
    """The same arguments as `fused_one_row`."""
    tile = tl.program_id(0)
    width: tl.constexpr = units * lanes
    out, valid = rows_of_weights(tile, out_features, gate != "none", outputs)
    inverse = inverse_rms(
        x, squares, num_squares, rows, in_features, eps, norm, padded_rows, norm_block
    )
    num_units = tl.cdiv(row_length, lanes)
    first = tl.program_id(1) * units_per_split
    total = tl.zeros((outputs, padded_rows), dtype=tl.float32)
    scale = tl.full((outputs, units), 1.0, dtype=tl.float32)
    least = tl.zeros((outputs, units), dtype=tl.float32)
    for start in range(first, min(first + units_per_split, num_units), units):
        place = start * lanes + tl.arange(0, width)
        inside = valid[:, None] & (place < row_length)[None, :]
        source = codes + out.to(tl.int64)[:, None] * row_length + place[None, :]
        stored = tl.load(source, inside, other=0, eviction_policy="evict_first")
        if number == "float":
            total += _times_rows(
                stored, x, gains, place, inverse, rows, in_features, offset, norm, padded_rows
            )
        else:
            unit = start + tl.arange(0, units)
            if units_per_group > 0:
                scale = scales_of(scales, out, valid, unit, num_units, groups, units_per_group)
            if has_minimums:
                least = scales_of(minimums, out, valid, unit, num_units, groups, units_per_group)
            by_unit = tl.reshape(stored, (outputs, units, lanes))
            if number == "int4":
                lane = tl.arange(0, width) % lanes
                k = (start + tl.arange(0, width) // lanes) * 32 + lane
                low = low_codes(by_unit, zero) * scale[:, :, None] + least[:, :, None]
                high = high_codes(by_unit, zero) * scale[:, :, None] + least[:, :, None]
                total += _times_rows(
                    tl.reshape(low, (outputs, width)),
                    x,
                    gains,
                    k,
                    inverse,
                    rows,
                    in_features,
                    offset,
                    norm,
                    padded_rows,
                )
                total += _times_rows(
                    tl.reshape(high, (outputs, width)),
                    x,
                    gains,
                    k + 16,
                    inverse,
                    rows,
                    in_features,
                    offset,
                    norm,
                    padded_rows,
                )
            else:
                numbers = (
                    unscaled(by_unit, number, native_fp8) * scale[:, :, None] + least[:, :, None]
                )
                total += _times_rows(
                    tl.reshape(numbers, (outputs, width)),
                    x,
                    gains,
                    place,
                    inverse,
                    rows,
                    in_features,
                    offset,
                    norm,
                    padded_rows,
                )
    if scales_rows:
        total *= tl.load(scales + out, valid, other=0.0)[:, None]
    join_and_finish(
        total,
        tile,
        out,
        valid,
        bias,
        y,
        new_squares,
        parts,
        counters,
        rows,
        out_features,
        splits,
        whole,
        most_splits,
        has_bias,
        adds,
        gate,
        outputs,
        padded_rows,
    )
