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
    int8_codes,
    int8_codes_of_words,
    half_and_high_codes,
    half_and_low_codes,
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
    most_splits: tl.constexpr,
    has_bias: tl.constexpr,
    adds: tl.constexpr,
    gate: tl.constexpr,
    outputs: tl.constexpr,
    padded_rows: tl.constexpr,
):
    """Of sums over this program's share of in_features: the last program adds them up.

    All of them are on their way at once, and the order of the sum is that of the code: the same in
    every run.
    """
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
            split = tl.arange(0, most_splits)[:, None, None]
            all_parts = own[None, :, :] + split * outputs * padded_rows
            given = tl.load(all_parts, split < splits, other=0.0, cache_modifier=".cg")
            joined = tl.sum(given, axis=0)
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
def _units_from(  # type: ignore[no-untyped-def]
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
    """Each thread multiplies the weights that it loaded; a unit's sum is scaled, not its codes."""
    tile = tl.program_id(0)
    # int8 and int4 come as words of 4 bytes, 16 bytes of a unit being as many weights or halves of them
    of_a_unit: tl.constexpr = 4 * lanes if by_words else lanes
    width: tl.constexpr = units * of_a_unit
    exact: tl.constexpr = x.dtype.element_ty == tl.float32
    out, valid = rows_of_weights(tile, out_features, gate != "none", outputs)
    num_units = tl.cdiv(row_length, lanes)
    if by_words:
        row_length = num_units * lanes  # whole units, which the compiler sees: it may load 16 bytes
    first = tl.program_id(1) * units_per_split
    stop = min(first + units_per_split, num_units)
    # the first weights are on their way while the norm waits for the numbers that it squares
    stored = _units_from(codes, out, valid, first, stop, row_length, units, lanes)
    inverse = inverse_rms(
        x, squares, num_squares, rows, in_features, eps, norm, padded_rows, norm_block
    )
    scale_of_x = tl.sum(inverse, axis=0)  # of the only row
    total = tl.zeros((outputs, units), dtype=tl.float32)
    for start in range(first, stop, units):
        if number == "int4":
            k = (start + tl.arange(0, width) // 16) * 32 + tl.arange(0, width) % 16
            given = _given(x, gains, k, in_features, scale_of_x, offset, norm)
            high = _given(x, gains, k + 16, in_features, scale_of_x, offset, norm)
            lows, highs = half_and_low_codes(stored), half_and_high_codes(stored)
            if exact:
                lows, highs = lows - 0.5, highs - 0.5
            sums = _sums_of_units(lows, given, outputs, units, of_a_unit)
            sums += _sums_of_units(highs, high, outputs, units, of_a_unit)
            of_x = tl.sum(tl.reshape(given + high, (1, units, of_a_unit)), axis=2)
            sums = 256.0 * sums - (zero if exact else zero + 128.0) * of_x
        else:
            k = start * of_a_unit + tl.arange(0, width)
            given = _given(x, gains, k, in_features, scale_of_x, offset, norm)
            if by_words:
                weights = int8_codes_of_words(stored)
            else:
                weights = unscaled(stored, number, native_fp8).to(tl.float32)
            sums = _sums_of_units(weights, given, outputs, units, of_a_unit)
        unit = start + tl.arange(0, units)
        if units_per_group > 0:
            sums *= scales_of(scales, out, valid, unit, num_units, groups, units_per_group)
        if has_minimums:
            least = scales_of(minimums, out, valid, unit, num_units, groups, units_per_group)
            sums += least * of_x
        total += sums
        stored = _units_from(codes, out, valid, start + units, stop, row_length, units, lanes)
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
        most_splits,
        has_bias,
        adds,
        gate,
        outputs,
        padded_rows,
    )
