"""Packed weights back to floats on a GPU: a matrix for a product of many rows, or rows of a table.

Reads the packed bytes of the rows once and writes `out`, which the product then reads back.
"""

import torch
import triton
import triton.language as tl

from llmprof.engine.kernels.launch import observable
from llmprof.engine.kernels.triton.gpu import converts_fp8, on_device_of
from llmprof.engine.kernels.triton.weight_codes import (
    UNIT_BYTES,
    byte_codes,
    high_codes,
    low_codes,
)

_UNITS = 32
_ROWS = 4


@triton.jit  # type: ignore[untyped-decorator]
def _unpack(  # type: ignore[no-untyped-def]
    out,
    codes,
    scales,
    minimums,
    ids,
    first,
    rows,
    in_features,
    row_bytes,
    groups,
    is_int4: tl.constexpr,
    is_fp8: tl.constexpr,
    native_fp8: tl.constexpr,
    zero: tl.constexpr,
    has_minimums: tl.constexpr,
    by_id: tl.constexpr,
    units_per_group: tl.constexpr,
    block_rows: tl.constexpr,
    units: tl.constexpr,
):
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    valid = row < rows
    source = tl.load(ids + row, valid, other=0) if by_id else first + row.to(tl.int64)
    unit = tl.program_id(1) * units + tl.arange(0, units)
    lane = tl.arange(0, 16)[None, None, :]
    place = unit[None, :, None] * 16 + lane
    inside = valid[:, None, None] & (place < row_bytes)
    stored = tl.load(codes + source[:, None, None] * row_bytes + place, inside, other=0)
    if units_per_group > 0:
        table = source[:, None] * groups + (unit // units_per_group)[None, :]
        exists = valid[:, None] & (unit * 16 < row_bytes)[None, :]
        scale = tl.load(scales + table, exists, other=0.0).to(tl.float32)[:, :, None]
    else:
        scale = tl.load(scales + source, valid, other=0.0)[:, None, None]
    target = out + row.to(tl.int64)[:, None, None] * in_features
    if is_int4:
        low, high = low_codes(stored, zero) * scale, high_codes(stored, zero) * scale
        if has_minimums:
            least = tl.load(minimums + table, exists, other=0.0).to(tl.float32)[:, :, None]
            low, high = low + least, high + least
        place = unit[None, :, None] * 32 + lane
        tl.store(target + place, low.to(out.dtype.element_ty), inside)
        tl.store(target + place + 16, high.to(out.dtype.element_ty), inside)
    else:
        numbers = byte_codes(stored, is_fp8, native_fp8) * scale
        tl.store(target + place, numbers.to(out.dtype.element_ty), inside)


@observable("triton_unpack_rows_", mutates=("out",))
def triton_unpack_rows_(
    out: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    minimums: torch.Tensor | None,
    ids: torch.Tensor | None,
    first: int,
    number: str,
    group_size: int,
) -> None:
    """As `kernels.unpack.unpack_rows_`, which has the same arguments, on a GPU."""
    stored = codes.view(torch.uint8)
    rows, in_features = out.shape
    row_bytes = stored.shape[1]
    num_units = -(-row_bytes // UNIT_BYTES)
    with on_device_of(out):
        _unpack[(triton.cdiv(rows, _ROWS), triton.cdiv(num_units, _UNITS))](
            out,
            stored,
            scales,
            scales if minimums is None else minimums,
            out if ids is None else ids,
            first,
            rows,
            in_features,
            row_bytes,
            scales.shape[1] if group_size else 1,
            is_int4=number == "int4",
            is_fp8=number == "fp8",
            native_fp8=converts_fp8(out.device),
            zero=8 if number == "int4" and minimums is None else 0,
            has_minimums=minimums is not None,
            by_id=ids is not None,
            units_per_group=group_size // (32 if number == "int4" else 16),
            block_rows=_ROWS,
            units=_UNITS,
        )
