"""Activations rounded to fp8, and products with them, in Triton's interpreter and on torch's CPU."""

import pytest
import torch

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.kernels.fp8_products import fp8_product
from llmprof.engine.kernels.triton import quantize_rows
from llmprof.engine.kernels.triton.quantize_rows import triton_quantize_rows
from tests.fp8_by_rows import fp8_by_rows
from tests.packed_weights import random_packed


@pytest.mark.parametrize("columns", [16, 64])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rows_as_torch_rounds_them(
    dtype: torch.dtype, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 40 columns: one block, or three of which the last is not full."""
    monkeypatch.setattr(quantize_rows, "_MOST_AT_ONCE", columns)
    torch.manual_seed(0)  # near a tie, a code may be either neighbour
    x = (torch.randn(5, 40) * torch.tensor([1e-3, 1.0, 50.0, 1.0, 7.0])[:, None]).to(dtype)
    x[3] = 0
    codes, scales = triton_quantize_rows(x)
    largest = x.float().abs().amax(1, keepdim=True)
    assert torch.equal(scales, largest / 448)
    scaled = x.float() * torch.where(largest > 0, 448 / largest, 0)
    assert torch.equal(codes.float(), scaled.clamp(-448, 448).to(torch.float8_e4m3fn).float())


@fp8_by_rows
@pytest.mark.parametrize("bias", [True, False])
def test_a_product_of_rows_in_fp8(bias: bool) -> None:
    packed, weights = random_packed(WeightFormat("fp8"), 48, 96, torch.bfloat16)
    x = torch.randn(40, 96).bfloat16()
    added = torch.randn(48).bfloat16() if bias else None
    y = fp8_product(x, packed.codes, packed.scales, added)
    scale = x.double().abs().amax(1, keepdim=True) / 448
    rounded = (x.double() / scale).float().to(torch.float8_e4m3fn).double() * scale
    expected = rounded @ torch.from_numpy(weights).T
    if added is not None:
        expected += added.double()
    assert y.dtype is torch.bfloat16
    largest = float(expected.abs().max())
    # near a tie, one activation of a row may round to either neighbour, a sixteenth apart
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=2**-5 * largest)
    exact = x.double() @ torch.from_numpy(weights).T + (0 if added is None else added.double())
    assert (y.double() - exact).square().mean().sqrt() < 0.03 * exact.square().mean().sqrt()
