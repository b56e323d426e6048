"""y = x W^T + b for a few rows of x on a GPU, W packed: bytes are turned into weights in registers.

Reads the codes, scales and minimums once: `PackedWeight.nbytes`, and x [rows, in] and y [rows, out]
beside them; 2 * rows * in * out FLOPs. torch's int4 product knows another order of codes, and its
int8 product no groups.
"""

from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl

from llmprof.engine.kernels.launch import observable
from llmprof.engine.kernels.triton.add_splits import add_splits
from llmprof.engine.kernels.triton.gpu import multiprocessors, on_device_of
from llmprof.engine.kernels.triton.weight_codes import (
    UNIT_BYTES,
    high_codes,
    int8_codes,
    low_codes,
)

_LEAST_ROWS_OF_DOTS: Final = 2
"""From so many rows on the tensor cores multiply, which want 16 and are given zeros for the rest."""
_PROGRAMS_PER_MULTIPROCESSOR: Final = 4
"""Fewer leave a GPU's memory waiting: then the sum over in_features is split among more of them."""
_MOST_SPLITS: Final = 16


@triton.jit  # type: ignore[untyped-decorator]
def _scales_of(table, out, valid, unit, num_units, groups, units_per_group: tl.constexpr):  # type: ignore[no-untyped-def]
    """[outputs, units], float32."""
    places = out[:, None].to(tl.int64) * groups + (unit // units_per_group)[None, :]
    return tl.load(table + places, valid[:, None] & (unit < num_units)[None, :], other=0.0).to(
        tl.float32
    )


@triton.jit  # type: ignore[untyped-decorator]
def _multiply_one_row(  # type: ignore[no-untyped-def]
    x,
    codes,
    scales,
    minimums,
    bias,
    y,
    rows,
    in_features,
    out_features,
    row_bytes,
    groups,
    units_per_split,
    is_int4: tl.constexpr,
    zero: tl.constexpr,
    has_minimums: tl.constexpr,
    has_bias: tl.constexpr,
    units_per_group: tl.constexpr,
    padded_rows: tl.constexpr,
    outputs: tl.constexpr,
    units: tl.constexpr,
):
    """Each thread multiplies the codes that it loaded; a unit's sum is scaled, not its codes."""
    out = tl.program_id(0) * outputs + tl.arange(0, outputs)
    valid = out < out_features
    lane = tl.arange(0, 16)[None, None, :]
    num_units = tl.cdiv(row_bytes, 16)
    first = tl.program_id(1) * units_per_split
    base = codes + out.to(tl.int64)[:, None, None] * row_bytes
    total = tl.zeros((outputs, units), dtype=tl.float32)
    for start in range(first, min(first + units_per_split, num_units), units):
        unit = start + tl.arange(0, units)
        place = unit[None, :, None] * 16 + lane
        inside = valid[:, None, None] & (place < row_bytes)
        stored = tl.load(base + place, inside, other=0, eviction_policy="evict_first")
        if is_int4:
            k = unit[None, :, None] * 32 + lane
            low = tl.load(x + k, k < in_features, other=0.0).to(tl.float32)
            high = tl.load(x + k + 16, k + 16 < in_features, other=0.0).to(tl.float32)
            sums = tl.sum(low_codes(stored, zero) * low + high_codes(stored, zero) * high, axis=2)
            given = low + high
        else:
            given = tl.load(x + place, place < in_features, other=0.0).to(tl.float32)
            sums = tl.sum(int8_codes(stored) * given, axis=2)
        if units_per_group > 0:
            sums *= _scales_of(scales, out, valid, unit, num_units, groups, units_per_group)
        if has_minimums:
            least = _scales_of(minimums, out, valid, unit, num_units, groups, units_per_group)
            sums += least * tl.sum(given, axis=2)
        total += sums
    result = tl.sum(total, axis=1)
    if units_per_group == 0:
        result *= tl.load(scales + out, valid, other=0.0)
    if has_bias:
        result += tl.load(bias + out, valid, other=0.0).to(tl.float32)
    place = tl.program_id(1).to(tl.int64) * out_features + out
    tl.store(y + place, result.to(y.dtype.element_ty), valid)


@triton.jit  # type: ignore[untyped-decorator]
def _weights_times(  # type: ignore[no-untyped-def]
    codes,
    x,
    row,
    rows,
    k,
    in_features,
    scale,
    least,
    outputs: tl.constexpr,
    padded_rows: tl.constexpr,
    width: tl.constexpr,
):
    """Weights [outputs, units, 16] times x^T, [outputs, padded_rows]; rounded to the dtype of x first."""
    weights = tl.reshape(codes * scale[:, :, None] + least[:, :, None], (outputs, width))
    valid = (k < in_features)[None] & (row < rows)[:, None, None]
    given = tl.load(x + row[:, None, None] * in_features + k[None], valid, other=0.0)
    given = tl.trans(tl.reshape(given, (padded_rows, width)))
    return tl.dot(weights.to(x.dtype.element_ty), given, input_precision="ieee")


@triton.jit  # type: ignore[untyped-decorator]
def _multiply_by_dots(  # type: ignore[no-untyped-def]
    x,
    codes,
    scales,
    minimums,
    bias,
    y,
    rows,
    in_features,
    out_features,
    row_bytes,
    groups,
    units_per_split,
    is_int4: tl.constexpr,
    zero: tl.constexpr,
    has_minimums: tl.constexpr,
    has_bias: tl.constexpr,
    units_per_group: tl.constexpr,
    padded_rows: tl.constexpr,
    outputs: tl.constexpr,
    units: tl.constexpr,
):
    """On tensor cores, W^T being the left factor: its outputs fill them, the rows of x need not."""
    out = tl.program_id(0) * outputs + tl.arange(0, outputs)
    valid = out < out_features
    row = tl.arange(0, padded_rows)
    lane = tl.arange(0, 16)
    num_units = tl.cdiv(row_bytes, 16)
    first = tl.program_id(1) * units_per_split
    base = codes + out.to(tl.int64)[:, None, None] * row_bytes
    total = tl.zeros((outputs, padded_rows), dtype=tl.float32)
    scale = tl.full((outputs, units), 1.0, dtype=tl.float32)
    least = tl.zeros((outputs, units), dtype=tl.float32)
    for start in range(first, min(first + units_per_split, num_units), units):
        unit = start + tl.arange(0, units)
        place = unit[:, None] * 16 + lane[None, :]
        inside = valid[:, None, None] & (place < row_bytes)[None]
        stored = tl.load(base + place[None], inside, other=0, eviction_policy="evict_first")
        if units_per_group > 0:
            scale = _scales_of(scales, out, valid, unit, num_units, groups, units_per_group)
        if has_minimums:
            least = _scales_of(minimums, out, valid, unit, num_units, groups, units_per_group)
        if is_int4:
            k = unit[:, None] * 32 + lane[None, :]
            total += _weights_times(
                low_codes(stored, zero),
                x,
                row,
                rows,
                k,
                in_features,
                scale,
                least,
                outputs,
                padded_rows,
                units * 16,
            )
            total += _weights_times(
                high_codes(stored, zero),
                x,
                row,
                rows,
                k + 16,
                in_features,
                scale,
                least,
                outputs,
                padded_rows,
                units * 16,
            )
        else:
            numbers = int8_codes(stored)
            total += _weights_times(
                numbers,
                x,
                row,
                rows,
                place,
                in_features,
                scale,
                least,
                outputs,
                padded_rows,
                units * 16,
            )
    if units_per_group == 0:
        total *= tl.load(scales + out, valid, other=0.0)[:, None]
    if has_bias:
        total += tl.load(bias + out, valid, other=0.0).to(tl.float32)[:, None]
    place = (
        tl.program_id(1).to(tl.int64) * rows * out_features
        + row[None, :] * out_features
        + out[:, None]
    )
    tl.store(y + place, total.to(y.dtype.element_ty), valid[:, None] & (row < rows)[None, :])


@dataclass(frozen=True, slots=True)
class MatvecPlan:
    """How the work is cut.

    The same for the same shapes: a race of plans would let two runs of one setting differ in speed,
    and in the last bit of their results.
    """

    by_dots: bool
    padded_rows: int
    outputs: int
    """Rows of W of one program."""
    units: int
    """Of 16 bytes that a program reads of each of them at once."""
    splits: int
    """Programs that share an output."""
    warps: int


def plan_matvec(
    rows: int, out_features: int, row_bytes: int, num_multiprocessors: int
) -> MatvecPlan:
    """Whole lines of 128 bytes and more per row of W, and enough programs to fill the GPU."""
    by_dots = rows >= _LEAST_ROWS_OF_DOTS
    padded_rows = max(16, triton.next_power_of_2(rows)) if by_dots else rows
    outputs, units = (32, 8) if by_dots else (8, 32)
    num_units = -(-row_bytes // UNIT_BYTES)
    programs = -(-out_features // outputs)
    wanted = -(-_PROGRAMS_PER_MULTIPROCESSOR * num_multiprocessors // programs)
    splits = max(1, min(wanted, _MOST_SPLITS, num_units // units))
    return MatvecPlan(by_dots, padded_rows, outputs, units, splits, warps=4)


def _fake(x: torch.Tensor, codes: torch.Tensor, *_: object) -> torch.Tensor:
    return x.new_empty(x.shape[0], codes.shape[0])


@observable("triton_matvec", fake=_fake)
def triton_matvec(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    minimums: torch.Tensor | None,
    bias: torch.Tensor | None,
    number: str,
    group_size: int,
) -> torch.Tensor:
    """Multiply a few rows by a packed weight, summed in float32, rounded to the dtype of x at the end.

    From three rows on the weights themselves are rounded to the dtype of x before tensor cores
    multiply them, as unpacking does.

    Args:
        x: [rows, in_features], few (`kernels.packed.GPU_ROWS`); fp32, bf16 or fp16.
        codes: contiguous, as in `PackedWeight`.
        scales: as in `PackedWeight`.
        minimums: of an asymmetric format.
        bias: [out_features], of the dtype of x.
        number: int8 or int4: what `codes` holds.
        group_size: of weights that share a scale; 0 where a row has one.

    Returns:
        [rows, out_features], new.
    """
    x, stored = x.contiguous(), codes.view(torch.uint8)
    rows, in_features = x.shape
    out_features, row_bytes = stored.shape
    plan = plan_matvec(rows, out_features, row_bytes, multiprocessors(x.device))
    whole = plan.splits == 1
    shape = (plan.splits, rows, out_features)
    y = x.new_empty(shape, dtype=x.dtype if whole else torch.float32)
    num_units = -(-row_bytes // UNIT_BYTES)
    units_per_split = -(-num_units // (plan.splits * plan.units)) * plan.units
    codes_per_unit = 32 if number == "int4" else 16
    kernel = _multiply_by_dots if plan.by_dots else _multiply_one_row
    with on_device_of(x):
        kernel[(triton.cdiv(out_features, plan.outputs), plan.splits)](
            x,
            stored,
            scales,
            scales if minimums is None else minimums,
            x if bias is None else bias,
            y,
            rows,
            in_features,
            out_features,
            row_bytes,
            scales.shape[1] if group_size else 1,
            units_per_split,
            is_int4=number == "int4",
            zero=8 if number == "int4" and minimums is None else 0,
            has_minimums=minimums is not None,
            has_bias=bias is not None and whole,
            units_per_group=group_size // codes_per_unit,
            padded_rows=plan.padded_rows,
            outputs=plan.outputs,
            units=plan.units,
            num_warps=plan.warps,
        )
    return y.squeeze(0) if whole else add_splits(y, bias, x.dtype)
