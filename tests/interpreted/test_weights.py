"""Packed weights against products and tables of torch and numpy, in Triton's interpreter.

It multiplies no bf16 matrices, so the dots are checked in fp32 and fp16.
"""

import pytest
import torch

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.kernels.triton import fused_products, weight_matvec
from llmprof.engine.kernels.triton.add_splits import add_splits
from llmprof.engine.kernels.triton.weight_matvec import triton_matvec, triton_matvec_add_
from llmprof.engine.kernels.triton.weight_plan import plan_matvec
from llmprof.engine.kernels.triton.weight_unpack import triton_unpack_rows_
from tests.packed_weights import FORMATS, random_packed

formats = pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
ROUNDING = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2**-7}


def check(
    fmt: WeightFormat, rows: int, out: int, inner: int, dtype: torch.dtype, *, bias: bool
) -> None:
    packed, weights = random_packed(fmt, out, inner, dtype)
    x = torch.randn(rows, inner, generator=torch.Generator().manual_seed(rows)).to(dtype)
    added = torch.randn(out).to(dtype) if bias else None
    y = triton_matvec(
        x, packed.codes, packed.scales, packed.minimums, added, fmt.number, fmt.group_size or 0
    )
    expected = x.double() @ torch.from_numpy(weights).T
    if added is not None:
        expected += added.double()
    assert y.shape == (rows, out)
    assert y.dtype is dtype
    largest = float(expected.abs().max())
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=ROUNDING[dtype] * largest)


@formats
@pytest.mark.parametrize("rows", [1, 3, 17])
def test_few_rows_times_a_packed_weight(fmt: WeightFormat, rows: int) -> None:
    """Outputs and units that fill no block: 13 of 8 or 32, 5 or 10 of 8 or 32."""
    check(fmt, rows, 13, 160, torch.float32, bias=rows == 3)


@pytest.mark.parametrize(("rows", "dtype"), [(1, torch.bfloat16), (2, torch.float16)])
def test_activations_in_16_bits(rows: int, dtype: torch.dtype) -> None:
    check(WeightFormat("int4", 32, symmetric=False), rows, 40, 1056, dtype, bias=True)


def test_rows_of_a_weight_that_fill_no_unit() -> None:
    """One scale per row allows any length: here no multiple of the 16 bytes of a load."""
    check(WeightFormat("int8"), 1, 9, 77, torch.float32, bias=False)
    check(WeightFormat("int8"), 4, 9, 77, torch.float32, bias=False)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("bias", [True, False])
def test_a_sum_that_is_split(rows: int, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    take_for(3, monkeypatch)
    assert plan_matvec(rows, 8, 8192, 3).splits > 2
    check(WeightFormat("int4", 64, symmetric=True), rows, 8, 16_384, torch.float32, bias=bias)


def take_for(multiprocessors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (weight_matvec, fused_products):
        monkeypatch.setattr(module, "multiprocessors", lambda device: multiprocessors)


@pytest.mark.parametrize("multiprocessors", [1, 9])
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("bias", [True, False])
def test_a_product_is_added_to_a_total(
    rows: int, bias: bool, multiprocessors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of programs that have their outputs for themselves, and of some that share them."""
    take_for(multiprocessors, monkeypatch)
    fmt, outputs, inner = WeightFormat("int4", 64, symmetric=True), 112, 8192
    assert (plan_matvec(rows, outputs, inner // 2, multiprocessors).splits > 1) is (
        multiprocessors > 1
    )
    packed, weights = random_packed(fmt, outputs, inner)
    x, total = torch.randn(rows, inner), torch.randn(rows, outputs)
    added = torch.randn(outputs) if bias else None
    expected = total.double() + x.double() @ torch.from_numpy(weights).T
    if added is not None:
        expected += added.double()
    triton_matvec_add_(total, x, packed.codes, packed.scales, None, added, "int4", 64)
    largest = float(expected.abs().max())
    torch.testing.assert_close(total.double(), expected, rtol=0, atol=2e-6 * largest)


def test_splits_are_added_in_order_and_rounded_once() -> None:
    parts = torch.tensor([[[1.0, 2.0**-9]], [[2.0**-9, 1.0]], [[2.0**-9, 2.0**-9]]])
    out = add_splits(parts, torch.tensor([0.0, 4.0]), torch.float16)
    assert out.tolist() == [[1 + 2.0**-8, 5.0 + 2.0**-8]]


@formats
def test_unpacked_rows(fmt: WeightFormat) -> None:
    packed, weights = random_packed(fmt, 13, 1120)
    for ids, first, wanted in (
        (torch.tensor([12, 0, 0, 7, 3]), 0, [12, 0, 0, 7, 3]),
        (None, 6, [6, 7, 8, 9, 10]),
    ):
        out = torch.full((5, 1120), torch.nan)
        triton_unpack_rows_(
            out,
            packed.codes,
            packed.scales,
            packed.minimums,
            ids,
            first,
            fmt.number,
            fmt.group_size or 0,
        )
        expected = torch.from_numpy(weights[wanted]).float()
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-7 * float(expected.abs().max()))
