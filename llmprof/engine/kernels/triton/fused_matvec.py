"""y = f(norm(x) W^T + b) for a few rows of x on a GPU, in one launch; f gates, adds, or does nothing.

Reads the weights once as they are stored (`weight_codes`), and per program x [rows, in]; writes y.
2 * rows * in * out FLOPs. What the separate kernels round in between is rounded here too: the norm
to the dtype of x, gate and up before the gate. So results differ from theirs only by the order in
which float32 sums are added, before the last rounding.
"""

import triton
import triton.language as tl

from llmprof.engine.kernels.triton.last_program import is_last
from llmprof.engine.kernels.triton.weight_codes import (
    fp8_numbers,
    high_codes,
    int8_codes,
    low_codes,
)


@triton.jit  # type: ignore[untyped-decorator]
def inverse_rms(  # type: ignore[no-untyped-def]
    x,
    squares,
    num_squares,
    rows,
    in_features,
    eps,
    norm: tl.constexpr,
    padded_rows: tl.constexpr,
    block: tl.constexpr,
):
    """1 / sqrt(mean(x^2) + eps) of each row [padded_rows], float32; ones where nothing is normed.

    `norm`: `given` where who made x left the sums of squares of its pieces, [num_squares, rows];
    `own` where they are summed here; `none`.
    """
    row = tl.arange(0, padded_rows)
    if norm == "none":
        inverse = tl.full((padded_rows,), 1.0, dtype=tl.float32)
    else:
        sums = tl.zeros((padded_rows, block), dtype=tl.float32)
        if norm == "given":
            for start in range(0, num_squares, block):
                piece = start + tl.arange(0, block)
                inside = (row < rows)[:, None] & (piece < num_squares)[None, :]
                place = piece[None, :] * rows + row[:, None]
                sums += tl.load(squares + place, inside, other=0.0)
        else:
            for start in range(0, in_features, block):
                k = start + tl.arange(0, block)
                inside = (row < rows)[:, None] & (k < in_features)[None, :]
                place = row[:, None] * in_features + k[None, :]
                numbers = tl.load(x + place, inside, other=0.0).to(tl.float32)
                sums += numbers * numbers
        inverse = 1.0 / tl.sqrt_rn(tl.sum(sums, axis=1) / in_features + eps)
    return inverse


@triton.jit  # type: ignore[untyped-decorator]
def rows_of_weights(  # type: ignore[no-untyped-def]
    tile, out_features, gated: tl.constexpr, outputs: tl.constexpr
):
    """Which rows of W a tile multiplies, and whether they exist; gated: gate and up side by side."""
    index = tile * outputs + tl.arange(0, outputs)
    valid = index < out_features
    if gated:
        index = index // 2 + (index % 2) * (out_features // 2)
    return index, valid


@triton.jit  # type: ignore[untyped-decorator]
def scales_of(table, out, valid, unit, num_units, groups, units_per_group: tl.constexpr):  # type: ignore[no-untyped-def]
    """[outputs, units], float32."""
    places = out[:, None].to(tl.int64) * groups + (unit // units_per_group)[None, :]
    exists = valid[:, None] & (unit < num_units)[None, :]
    return tl.load(table + places, exists, other=0.0).to(tl.float32)


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
def _finish(  # type: ignore[no-untyped-def]
    total,
    tile,
    out,
    valid,
    bias,
    y,
    new_squares,
    rows,
    out_features,
    has_bias: tl.constexpr,
    adds: tl.constexpr,
    gate: tl.constexpr,
    outputs: tl.constexpr,
    padded_rows: tl.constexpr,
):
    """Of whole sums [outputs, padded_rows]: bias, then gate or residual stream, then y."""
    row = tl.arange(0, padded_rows)
    dtype = y.dtype.element_ty
    if has_bias:
        total += tl.load(bias + out, valid, other=0.0).to(tl.float32)[:, None]
    if gate == "none":
        inside = valid[:, None] & (row < rows)[None, :]
        place = row[None, :] * out_features + out[:, None]
        if adds:
            total += tl.load(y + place, inside, other=0.0).to(tl.float32)
        rounded = total.to(dtype)
        tl.store(y + place, rounded, inside)
        if adds:
            numbers = tl.where(inside, rounded.to(tl.float32), 0.0)
            tl.store(new_squares + tile * rows + row, tl.sum(numbers * numbers, axis=0), row < rows)
    else:
        inner = out_features // 2
        pairs = tl.reshape(total.to(dtype).to(tl.float32), (outputs // 2, 2, padded_rows))
        gates, ups = tl.split(tl.permute(pairs, (0, 2, 1)))
        # 0.5 * (1 + tanh(z)) is the sigmoid of 2 z
        z = gates
        if gate == "gelu_tanh":
            z = 1.5957691216057308 * (gates + 0.044715 * gates * gates * gates)
        column = tile * (outputs // 2) + tl.arange(0, outputs // 2)
        inside = (column < inner)[:, None] & (row < rows)[None, :]
        product = gates * tl.sigmoid(z) * ups
        tl.store(y + row[None, :] * inner + column[:, None], product.to(dtype), inside)


@triton.jit  # type: ignore[untyped-decorator]
def join_and_finish(  # type: ignore[no-untyped-def]
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
    whole: tl.constexpr,
    has_bias: tl.constexpr,
    adds: tl.constexpr,
    gate: tl.constexpr,
    outputs: tl.constexpr,
    padded_rows: tl.constexpr,
):
    """Of sums over this program's share of in_features: the last program adds them up, in order."""
    if whole:
        _finish(
            total,
            tile,
            out,
            valid,
            bias,
            y,
            new_squares,
            rows,
            out_features,
            has_bias,
            adds,
            gate,
            outputs,
            padded_rows,
        )
    else:
        place = tl.arange(0, outputs)[:, None] * padded_rows + tl.arange(0, padded_rows)[None, :]
        own = parts + tile * splits * outputs * padded_rows + place
        tl.store(own + tl.program_id(1) * outputs * padded_rows, total)
        if is_last(counters, tile, splits):
            joined = tl.zeros((outputs, padded_rows), dtype=tl.float32)
            for split in range(splits):
                joined += tl.load(own + split * outputs * padded_rows, cache_modifier=".cg")
            _finish(
                joined,
                tile,
                out,
                valid,
                bias,
                y,
                new_squares,
                rows,
                out_features,
                has_bias,
                adds,
                gate,
                outputs,
                padded_rows,
            )


@triton.jit  # type: ignore[untyped-decorator]
def fused_one_row(  # type: ignore[no-untyped-def]
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
    scales_rows: tl.constexpr,
    units_per_group: tl.constexpr,
    padded_rows: tl.constexpr,
    outputs: tl.constexpr,
    units: tl.constexpr,
    lanes: tl.constexpr,
    norm_block: tl.constexpr,
):
    """Each thread multiplies the weights that it loaded; a unit's sum is scaled, not its codes."""
    tile = tl.program_id(0)
    out, valid = rows_of_weights(tile, out_features, gate != "none", outputs)
    inverse = inverse_rms(
        x, squares, num_squares, rows, in_features, eps, norm, padded_rows, norm_block
    )
    scale_of_x = tl.sum(inverse, axis=0)  # of the only row
    lane = tl.arange(0, lanes)[None, None, :]
    num_units = tl.cdiv(row_length, lanes)
    first = tl.program_id(1) * units_per_split
    base = codes + out.to(tl.int64)[:, None, None] * row_length
    total = tl.zeros((outputs, units), dtype=tl.float32)
    for start in range(first, min(first + units_per_split, num_units), units):
        unit = start + tl.arange(0, units)
        place = unit[None, :, None] * lanes + lane
        inside = valid[:, None, None] & (place < row_length)
        stored = tl.load(base + place, inside, other=0, eviction_policy="evict_first")
        if number == "int4":
            k = unit[None, :, None] * 32 + lane
            low = tl.load(x + k, k < in_features, other=0.0)
            low = normed(low, gains, k, k < in_features, scale_of_x, offset, norm).to(tl.float32)
            k += 16
            high = tl.load(x + k, k < in_features, other=0.0)
            high = normed(high, gains, k, k < in_features, scale_of_x, offset, norm).to(tl.float32)
            sums = tl.sum(low_codes(stored, zero) * low + high_codes(stored, zero) * high, axis=2)
            given = low + high
        else:
            given = tl.load(x + place, place < in_features, other=0.0)
            given = normed(given, gains, place, place < in_features, scale_of_x, offset, norm)
            given = given.to(tl.float32)
            weights = unscaled(stored, number, native_fp8).to(tl.float32)
            sums = tl.sum(weights * given, axis=2)
        if units_per_group > 0:
            sums *= scales_of(scales, out, valid, unit, num_units, groups, units_per_group)
        if has_minimums:
            least = scales_of(minimums, out, valid, unit, num_units, groups, units_per_group)
            sums += least * tl.sum(given, axis=2)
        total += sums
    result = tl.sum(total, axis=1)
    if scales_rows:
        result *= tl.load(scales + out, valid, other=0.0)
    join_and_finish(
        result[:, None],
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
        has_bias,
        adds,
        gate,
        outputs,
        padded_rows,
    )
