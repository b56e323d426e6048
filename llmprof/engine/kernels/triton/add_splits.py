"""The end of a product that was split along what it sums over."""

import torch
import triton
import triton.language as tl

from llmprof.engine.kernels.triton.gpu import on_device_of

_BLOCK = 1024


# Triton compiles annotations too, and knows no others than its own.
@triton.jit  # type: ignore[untyped-decorator]
def _add(  # type: ignore[no-untyped-def]
    parts,
    bias,
    out,
    numbers,
    columns,
    splits: tl.constexpr,
    has_bias: tl.constexpr,
    adds: tl.constexpr,
    block: tl.constexpr,
):
    index = tl.program_id(0) * block + tl.arange(0, block)
    valid = index < numbers
    total = tl.zeros((block,), dtype=tl.float32)
    if adds:
        total += tl.load(out + index, valid, other=0.0).to(tl.float32)
    for split in tl.static_range(splits):  # all of them are on their way at once
        total += tl.load(parts + split * numbers + index, valid, other=0.0)
    if has_bias:
        total += tl.load(bias + index % columns, valid, other=0.0).to(tl.float32)
    tl.store(out + index, total.to(out.dtype.element_ty), valid)


def add_splits(parts: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """Sum over the splits in their order, always the same, and round once.

    Reads 4 bytes per split and number; `tl.atomic_add` would add in another order every time.

    Args:
        parts: [splits, rows, columns] float32, contiguous.
        bias: [columns].
        dtype: of the result.

    Returns:
        [rows, columns], new.
    """
    out = parts.new_empty(parts.shape[1:], dtype=dtype)
    _launch(out, parts, bias, adds=False)
    return out


def add_splits_to_(total: torch.Tensor, parts: torch.Tensor, bias: torch.Tensor | None) -> None:
    """As `add_splits`, added to total [rows, columns], contiguous, before it is rounded."""
    _launch(total, parts, bias, adds=True)


def _launch(
    out: torch.Tensor, parts: torch.Tensor, bias: torch.Tensor | None, *, adds: bool
) -> None:
    splits, _, columns = parts.shape
    numbers = out.numel()
    with on_device_of(parts):
        _add[(triton.cdiv(numbers, _BLOCK),)](
            parts,
            parts if bias is None else bias,
            out,
            numbers,
            columns,
            splits,
            has_bias=bias is not None,
            adds=adds,
            block=_BLOCK,
        )
