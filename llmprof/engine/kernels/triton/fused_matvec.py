"""y = f(norm(x) W^T + b) for a few rows of x on a GPU, in one launch; f gates, adds, or does nothing.

Reads the weights once as they are stored (`weight_codes`), and per program x [rows, in]; writes y.
2 * rows * in * out FLOPs. What the separate kernels round in between is rounded here too: the norm
to the dtype of x, gate and up before the gate. So results differ from theirs only by the order in
which float32 sums are added, before the last rounding.
"""

import triton
import triton.language as tl

from llmprof.engine.kernels.triton.last_program import is_last
from llmprof.engine.kernels.triton.unit_sums import sums_of_tile, units_from


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
    out, valid = rows_of_weights(tile, out_features, gate != "none", outputs)
    num_units = tl.cdiv(row_length, lanes)
    if by_words:
        row_length = num_units * lanes  # whole units, which the compiler sees: it may load 16 bytes
    first = tl.program_id(1) * units_per_split
    stop = min(first + units_per_split, num_units)
    # the first weights are on their way while the norm waits for the numbers that it squares
    stored = units_from(codes, out, valid, first, stop, row_length, units, lanes)
    inverse = inverse_rms(
        x, squares, num_squares, rows, in_features, eps, norm, padded_rows, norm_block
    )
    scale_of_x = tl.sum(inverse, axis=0)  # of the only row
    total = tl.zeros((outputs, units), dtype=tl.float32)
    for start in range(first, stop, units):
        sums, of_x = sums_of_tile(
            stored,
            x,
            gains,
            start,
            in_features,
            scale_of_x,
            offset,
            number,
            native_fp8,
            zero,
            norm,
            outputs,
            units,
            of_a_unit,
            by_words,
        )
        unit = start + tl.arange(0, units)
        if units_per_group > 0:
            sums *= scales_of(scales, out, valid, unit, num_units, groups, units_per_group)
        if has_minimums:
            least = scales_of(minimums, out, valid, unit, num_units, groups, units_per_group)
            sums += least * of_x
        total += sums
        stored = units_from(codes, out, valid, start + units, stop, row_length, units, lanes)
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
