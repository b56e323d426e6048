"""The products of a decoder layer for a few rows, each with what goes before and after it.

One launch each: norm and projection; norm, gate and up projections and their gate; projection and
addition to the residual stream. Kernels: `fused_matvec` for one row, `fused_dots` for more.
"""

from dataclasses import dataclass
from typing import Final

import torch
import triton

from llmprof.engine.kernels.launch import observable
from llmprof.engine.kernels.triton.fused_dots import fused_dots
from llmprof.engine.kernels.triton.fused_matvec import fused_one_row
from llmprof.engine.kernels.triton.gpu import converts_fp8, multiprocessors, on_device_of
from llmprof.engine.kernels.triton.last_program import MOST_SHARED, arrival_counters
from llmprof.engine.kernels.triton.weight_codes import UNIT_BYTES
from llmprof.engine.kernels.triton.weight_plan import MatvecPlan, plan_matvec

_NUMBERS_OF_A_NORM: Final = 4096
"""Of x, that a program squares at once."""
_UNITS_OF_FLOATS: Final = 16
"""Of 16 bytes of each row of W, that tensor cores take at once."""


@dataclass(frozen=True, slots=True)
class _Norm:
    gains: torch.Tensor
    squares: torch.Tensor | None
    eps: float
    offset: float


def _normed_shape(
    x: torch.Tensor,
    squares: torch.Tensor | None,
    gains: torch.Tensor,
    eps: float,
    offset: float,
    codes: torch.Tensor,
    *_: object,
) -> torch.Tensor:
    return x.new_empty(x.shape[0], codes.shape[0])


@observable("triton_normed_matvec", fake=_normed_shape)
def triton_normed_matvec(
    x: torch.Tensor,
    squares: torch.Tensor | None,
    gains: torch.Tensor,
    eps: float,
    offset: float,
    codes: torch.Tensor,
    scales: torch.Tensor | None,
    minimums: torch.Tensor | None,
    bias: torch.Tensor | None,
    number: str,
    group_size: int,
) -> torch.Tensor:
    """Multiply the RMS norm of x by a weight: float32 sums, the norm and y rounded to the dtype of x.

    Args:
        x: [rows, in_features], few (`costs.fusion.FUSED_ROWS`), contiguous.
        squares: [pieces, rows] float32, sums of squares of pieces of each row: what
            `triton_added_matvec_` gave when it made x. None: they are summed here.
        gains: [in_features], of the dtype of x.
        eps: added to the mean square.
        offset: added to the gains.
        codes: the weight [out_features, in_features] itself, or as in `PackedWeight`; contiguous.
        scales: as in `PackedWeight`; None of floats.
        minimums: of an asymmetric format.
        bias: [out_features], of the dtype of x.
        number: what `codes` holds: fp8, int8, int4 or the name of a dtype of floats.
        group_size: of weights that share a scale; 0 where a row has one, and of floats.

    Returns:
        [rows, out_features], new.
    """
    y = _normed_shape(x, squares, gains, eps, offset, codes)
    norm = _Norm(gains, squares, eps, offset)
    _product(y, x, norm, codes, scales, minimums, bias, number, group_size, gate="none")
    return y


def _gated_shape(*args: object) -> torch.Tensor:
    y = _normed_shape(*args)  # type: ignore[arg-type]
    return y.new_empty(y.shape[0], y.shape[1] // 2)


@observable("triton_gated_matvec", fake=_gated_shape)
def triton_gated_matvec(
    x: torch.Tensor,
    squares: torch.Tensor | None,
    gains: torch.Tensor,
    eps: float,
    offset: float,
    codes: torch.Tensor,
    scales: torch.Tensor | None,
    minimums: torch.Tensor | None,
    bias: torch.Tensor | None,
    number: str,
    group_size: int,
    activation: str,
) -> torch.Tensor:
    """As `triton_normed_matvec`, and the second half of each row times the activated first.

    `activation`: silu or gelu_tanh. Returns [rows, out_features / 2], new.
    """
    y = _gated_shape(x, squares, gains, eps, offset, codes)
    norm = _Norm(gains, squares, eps, offset)
    _product(y, x, norm, codes, scales, minimums, bias, number, group_size, gate=activation)
    return y


def _squares_of(
    total: torch.Tensor, x: torch.Tensor, codes: torch.Tensor, *_: object
) -> torch.Tensor:
    plan = plan_matvec(x.shape[0], codes.shape[0], codes.shape[1] * codes.itemsize, 1)
    pieces = triton.cdiv(codes.shape[0], plan.outputs)
    return total.new_empty(pieces, x.shape[0], dtype=torch.float32)


@observable("triton_added_matvec_", mutates=("total",), fake=_squares_of)
def triton_added_matvec_(
    total: torch.Tensor,
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor | None,
    minimums: torch.Tensor | None,
    bias: torch.Tensor | None,
    number: str,
    group_size: int,
) -> torch.Tensor:
    """Add the product of x to total [rows, out_features], contiguous, before it is rounded.

    Returns:
        Sums of the squares of pieces of the new total, [pieces, rows] float32: 4 bytes for every 16
        numbers or more, from which the next norm need not read all of it in every program.
    """
    squares = _squares_of(total, x, codes)
    _product(total, x, None, codes, scales, minimums, bias, number, group_size, new_squares=squares)
    return squares


def product_of_one_row(
    total: torch.Tensor | None,
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    minimums: torch.Tensor | None,
    bias: torch.Tensor | None,
    number: str,
    group_size: int,
) -> torch.Tensor:
    """See `weight_matvec.triton_matvec`: new, or added to `total`."""
    y = x.new_empty(1, len(codes)) if total is None else total
    squares = None if total is None else _squares_of(total, x, codes)
    _product(y, x, None, codes, scales, minimums, bias, number, group_size, new_squares=squares)
    return y


def _product(
    y: torch.Tensor,
    x: torch.Tensor,
    norm: _Norm | None,
    codes: torch.Tensor,
    scales: torch.Tensor | None,
    minimums: torch.Tensor | None,
    bias: torch.Tensor | None,
    number: str,
    group_size: int,
    *,
    gate: str = "none",
    new_squares: torch.Tensor | None = None,
) -> None:
    """Launch the kernel; `new_squares`: y is added to, and what it becomes is squared."""
    packed = number in ("fp8", "int8", "int4")
    stored = codes.view(torch.uint8) if packed else codes
    rows, in_features = x.shape
    row_bytes = stored.shape[1] * stored.itemsize
    plan = _plan(rows, len(stored), row_bytes, x.device, packed=packed)
    by_words = number in ("int8", "int4") and row_bytes % UNIT_BYTES == 0 and not plan.by_dots
    stored = stored.view(torch.int32) if by_words else stored
    out_features, row_length = stored.shape
    lanes = UNIT_BYTES // stored.itemsize
    tiles, num_units = triton.cdiv(out_features, plan.outputs), triton.cdiv(row_length, lanes)
    parts = _room_for_parts(plan, tiles, x)
    kernel = fused_dots if plan.by_dots else fused_one_row
    squares = None if norm is None else norm.squares
    with on_device_of(x):
        kernel[(tiles, plan.splits)](
            x,
            x if squares is None else squares,
            x if norm is None else norm.gains,
            stored,
            x if scales is None else scales,
            x if minimums is None else minimums,
            x if bias is None else bias,
            y,
            y if new_squares is None else new_squares,
            y if parts is None else parts,
            y if parts is None else arrival_counters(x.device),
            0 if squares is None else squares.shape[0],
            rows,
            in_features,
            out_features,
            row_length,
            scales.shape[1] if scales is not None and group_size else 1,
            triton.cdiv(triton.cdiv(num_units, plan.splits), plan.units) * plan.units,
            plan.splits,
            0.0 if norm is None else norm.eps,
            0.0 if norm is None else norm.offset,
            number=number if packed else "float",
            native_fp8=converts_fp8(x.device),
            zero=8 if number == "int4" and minimums is None else 0,
            norm="none" if norm is None else "own" if squares is None else "given",
            has_minimums=minimums is not None,
            has_bias=bias is not None,
            adds=new_squares is not None,
            gate=gate,
            whole=parts is None,
            most_splits=triton.next_power_of_2(plan.splits),
            scales_rows=packed and group_size == 0,
            units_per_group=group_size // (32 if number == "int4" else 16),
            padded_rows=plan.padded_rows,
            outputs=plan.outputs,
            units=plan.units,
            lanes=lanes,
            by_words=by_words,
            norm_block=_NUMBERS_OF_A_NORM // plan.padded_rows,
            num_warps=plan.warps,
        )


def _plan(
    rows: int, out_features: int, row_bytes: int, device: torch.device, *, packed: bool
) -> MatvecPlan:
    """That of packed weights; tensor cores take floats as they are, so more of them at once."""
    plan = plan_matvec(rows, out_features, row_bytes, multiprocessors(device))
    tiles = triton.cdiv(out_features, plan.outputs)
    units = _UNITS_OF_FLOATS if plan.by_dots and not packed else plan.units
    splits = plan.splits if tiles <= MOST_SHARED else 1
    return MatvecPlan(plan.by_dots, plan.padded_rows, plan.outputs, units, splits, warps=plan.warps)


def _room_for_parts(plan: MatvecPlan, tiles: int, x: torch.Tensor) -> torch.Tensor | None:
    """None where every program has its outputs for itself."""
    if plan.splits == 1:
        return None
    shape = (tiles, plan.splits, plan.outputs, plan.padded_rows)
    return x.new_empty(shape, dtype=torch.float32)
