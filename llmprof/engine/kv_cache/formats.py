"""How one number of a key or value is stored."""

from typing import Final

import torch

INT8_MAX: Final = 127
FP8_MAX: Final = 448.0
"""Largest finite float8_e4m3fn; a cast of more than that gives NaN."""

STORED_DTYPES: Final = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int8": torch.int8,
    "fp8": torch.float8_e4m3fn,
}


def quantize_int8(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric, one scale per vector: [..., head_dim] -> int8 of that shape, float32 [...].

    A vector of zeros has scale 0.
    """
    numbers = numbers.float()
    scales = numbers.abs().amax(dim=-1) / INT8_MAX
    inverse = torch.where(scales > 0, 1 / scales, 0)
    return (numbers * inverse.unsqueeze(-1)).round_().to(torch.int8), scales


def to_fp8(numbers: torch.Tensor) -> torch.Tensor:
    """To float8_e4m3fn; what is too large becomes the largest number."""
    return numbers.clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
