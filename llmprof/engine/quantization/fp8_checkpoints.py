"""Matrices that a checkpoint stores in fp8: codes times the scales that lie beside them.

Source: `weight_scale` of compressed-tensors (one for the matrix, or one per row), `weight_scale_inv` of
DeepSeek-V3's and Qwen3's checkpoints (one per block, which multiplies in spite of its name).
"""

from typing import Final

import torch

from llmprof.errors import CapabilityError, InputError

SCALE_PARTS: Final = ("weight_scale", "weight_scale_inv")
_NOT_A_NUMBER: Final = 0x7F


def check_codes(codes: torch.Tensor, where: str) -> None:
    """Refuse codes that are no weights.

    Raises:
        CapabilityError: another format of 8 bits.
        InputError: some are not numbers.
    """
    if codes.dtype is not torch.float8_e4m3fn:
        raise CapabilityError(f"{where} is stored as {codes.dtype}: the engine reads float8_e4m3fn")
    if (codes.view(torch.uint8) & _NOT_A_NUMBER == _NOT_A_NUMBER).any():
        raise InputError(f"{where} holds codes that are not numbers")


def row_scales(scale: torch.Tensor, rows: int) -> torch.Tensor | None:
    """[rows] in float32, where each row has one or all have the same; None where blocks have."""
    if scale.numel() == 1:
        return scale.float().reshape(1).expand(rows)
    if scale.numel() == rows == scale.shape[0]:
        return scale.float().reshape(rows)
    return None


def dequantized(
    codes: torch.Tensor, scale: torch.Tensor, block: tuple[int, int] | None, where: str
) -> torch.Tensor:
    """Codes [rows, columns] times their scales, in float32; `block`: rows and columns that share one.

    Raises:
        InputError: as many scales as fit neither rows nor blocks.
    """
    rows, columns = codes.shape
    if block is not None and scale.shape == (-(-rows // block[0]), -(-columns // block[1])):
        of_rows = scale.float().repeat_interleave(block[0], 0)[:rows]
        return codes.float() * of_rows.repeat_interleave(block[1], 1)[:, :columns]
    of_rows_or_none = row_scales(scale, rows)
    if of_rows_or_none is None:
        raise InputError(
            f"{where} is [{rows}, {columns}] and has scales {list(scale.shape)}: neither one for "
            "each row nor for each block"
        )
    return codes.float() * of_rows_or_none[:, None]
