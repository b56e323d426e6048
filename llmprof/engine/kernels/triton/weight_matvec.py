"""y = x W^T + b for a few rows of x on a GPU, W packed: bytes are turned into weights in registers.

Reads the codes, scales and minimums once: `PackedWeight.nbytes`, and x [rows, in] and y [rows, out]
beside them; 2 * rows * in * out FLOPs. torch's int4 product knows another order of codes, and its
int8 product no groups.
"""

import torch
import triton
import triton.language as tl

from llmprof.engine.kernels.launch import observable
from llmprof.engine.kernels.triton.add_splits import add_splits, add_splits_to_
from llmprof.engine.kernels.triton.fused_products import product_of_one_row
from llmprof.engine.kernels.triton.gpu import converts_fp8, multiprocessors, on_device_of
from llmprof.engine.kernels.triton.weight_codes import (
    UNIT_BYTES,
    byte_codes,
    high_codes,
    low_codes,
)
from llmprof.engine.kernels.triton.weight_plan import plan_matvec


@triton.jit  # type: ignore[untyped-decorator]
def _scales_of(table, out, valid, unit, num_units, groups, units_per_group: tl.constexpr):  # type: ignore[no-untyped-def]
    """[outputs, units], float32."""
    places = out[:, None].to(tl.int64) * groups + (unit // units_per_group)[None, :]
    return tl.load(table + places, valid[:, None] & (unit < num_units)[None, :], other=0.0).to(
        tl.float32
    )


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
    is_fp8: tl.constexpr,
    native_fp8: tl.constexpr,
    zero: tl.constexpr,
    has_minimums: tl.constexpr,
    has_bias: tl.constexpr,
    adds: tl.constexpr,
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
            numbers = byte_codes(stored, is_fp8, native_fp8)
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
    inside = valid[:, None] & (row < rows)[None, :]
    if adds:
        total += tl.load(y + place, inside, other=0.0).to(tl.float32)
    tl.store(y + place, total.to(y.dtype.element_ty), inside)


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

    From two rows on the weights themselves are rounded to the dtype of x before tensor cores multiply
    them, as unpacking does. One row has the kernel of `fused_products`, with nothing around it.

    Args:
        x: [rows, in_features], few (`kernels.packed.GPU_ROWS`); fp32, bf16 or fp16.
        codes: contiguous, as in `PackedWeight`.
        scales: as in `PackedWeight`.
        minimums: of an asymmetric format.
        bias: [out_features], of the dtype of x.
        number: fp8, int8 or int4: what `codes` holds.
        group_size: of weights that share a scale; 0 where a row has one.

    Returns:
        [rows, out_features], new.
    """
    return _product(None, x, codes, scales, minimums, bias, number, group_size)


@observable("triton_matvec_add_", mutates=("total",))
def triton_matvec_add_(
    total: torch.Tensor,
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    minimums: torch.Tensor | None,
    bias: torch.Tensor | None,
    number: str,
    group_size: int,
) -> None:
    """As `triton_matvec`, added to total [rows, out_features], contiguous, before it is rounded."""
    _product(total, x, codes, scales, minimums, bias, number, group_size)


def _product(
    total: torch.Tensor | None,
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    minimums: torch.Tensor | None,
    bias: torch.Tensor | None,
    number: str,
    group_size: int,
) -> torch.Tensor:
    """Added to `total` where there is one, else new."""
    x = x.contiguous()
    if len(x) == 1:
        return product_of_one_row(total, x, codes, scales, minimums, bias, number, group_size)
    stored = codes.view(torch.uint8)
    rows, in_features = x.shape
    out_features, row_bytes = stored.shape
    plan = plan_matvec(rows, out_features, row_bytes, multiprocessors(x.device))
    whole = plan.splits == 1
    if whole:
        y = x.new_empty(rows, out_features) if total is None else total
    else:
        y = x.new_empty((plan.splits, rows, out_features), dtype=torch.float32)
    num_units = -(-row_bytes // UNIT_BYTES)
    units_per_split = -(-num_units // (plan.splits * plan.units)) * plan.units
    codes_per_unit = 32 if number == "int4" else 16
    with on_device_of(x):
        _multiply_by_dots[(triton.cdiv(out_features, plan.outputs), plan.splits)](
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
            is_fp8=number == "fp8",
            native_fp8=converts_fp8(x.device),
            zero=8 if number == "int4" and minimums is None else 0,
            has_minimums=minimums is not None,
            has_bias=bias is not None and whole,
            adds=total is not None and whole,
            units_per_group=group_size // codes_per_unit,
            padded_rows=plan.padded_rows,
            outputs=plan.outputs,
            units=plan.units,
            num_warps=plan.warps,
        )
    if whole:
        return y
    if total is None:
        return add_splits(y, bias, x.dtype)
    add_splits_to_(total, y, bias)
    return total
