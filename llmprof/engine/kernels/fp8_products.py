"""y = x W^T + b in fp8 arithmetic, for many rows of x on a GPU: W as it is stored, x rounded on the way.

Source: Micikevicius et al. 2022, "FP8 formats for deep learning"; one scale per row of x and of W, as
`torch._scaled_mm` takes them ("row-wise"). That function is the same one in every version of torch
from 2.11 to 2.14, and its public name, `torch.nn.functional.scaled_mm`, calls the same kernels.
"""

import functools

import torch

from llmprof.engine.kernels.triton.gpu import converts_fp8

PRODUCT_NAME = "llmprof::triton_quantize_rows, torch._scaled_mm"


@functools.cache
def multiplies_fp8(device: torch.device) -> bool:
    """Whether the GPU has fp8 arithmetic (compute capability 8.9), and this build of torch uses it."""
    if not converts_fp8(device):
        return False
    ones = torch.ones(16, 16, device=device)
    try:
        scaled_product(
            ones.to(torch.float8_e4m3fn), ones[:, :1], ones.to(torch.float8_e4m3fn), ones[0], None
        )
    except RuntimeError:  # a build without these kernels: weights are unpacked
        return False
    return True


def fp8_product(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """Multiply many rows by a weight in fp8; both factors have 4 significant bits.

    Args:
        x: [rows, in_features] in bf16, the only dtype that torch gives row-wise products in.
        codes: [out_features, in_features], float8_e4m3fn; both sizes multiples of 16
            (`costs.weight_formats.fits_fp8_arithmetic`).
        scales: [out_features], float32.
        bias: [out_features] in bf16.

    Returns:
        [rows, out_features] in bf16.
    """
    from llmprof.engine.kernels.triton.quantize_rows import triton_quantize_rows

    rows, row_scales = triton_quantize_rows(x.contiguous())
    return scaled_product(rows, row_scales, codes, scales, bias)


def scaled_product(
    rows: torch.Tensor,
    row_scales: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """Of rows [m, k] and codes [n, k], both float8_e4m3fn, with scales [m, 1] and [n]: bf16 [m, n].

    Sums stay in the tensor cores, which keep about 14 bits of them on Hopper ("fast accumulation"):
    as inference engines do it, and as the ceiling is measured.
    """
    product: torch.Tensor = torch._scaled_mm(
        rows,
        codes.t(),
        scale_a=row_scales.contiguous(),
        scale_b=scales.view(1, -1),
        bias=bias,
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )
    return product
