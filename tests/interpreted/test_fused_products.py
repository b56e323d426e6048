"""Products with what goes before and after them, in Triton's interpreter.

Against torch in float64, with the roundings in between that separate kernels make. The interpreter
multiplies no bf16 matrices, so several rows are checked in fp32 and fp16; and its conversion to bf16
cuts bits off where a GPU rounds to the nearest, so what is rounded twice has twice the error.
"""

import pytest
import torch
from torch.nn import functional

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.kernels.triton import fused_products
from llmprof.engine.kernels.triton.fused_products import (
    triton_added_matvec_,
    triton_gated_matvec,
    triton_normed_matvec,
)
from llmprof.engine.kernels.triton.last_program import arrival_counters
from llmprof.engine.kernels.triton.weight_plan import plan_matvec
from llmprof.engine.linear import StoredWeight
from tests.packed_weights import FORMATS, random_packed

EPS = 1e-2
ROUNDING = {torch.float32: 2e-6, torch.float16: 2**-10, torch.bfloat16: 2**-6}


def packed_weight(
    fmt: WeightFormat, out: int, inner: int, dtype: torch.dtype, *, bias: bool
) -> tuple[StoredWeight, torch.Tensor, torch.Tensor]:
    """Arguments of a kernel, and the weights [out, inner] and bias that they stand for."""
    packed, weights = random_packed(fmt, out, inner, dtype)
    added = torch.randn(out, generator=torch.Generator().manual_seed(5)).to(dtype)
    stored = packed.codes, packed.scales, packed.minimums
    given: StoredWeight = (*stored, added if bias else None, fmt.number, fmt.group_size or 0)
    return given, torch.from_numpy(weights), added.double() if bias else torch.zeros(out).double()


def float_weight(
    out: int, inner: int, dtype: torch.dtype, *, bias: bool
) -> tuple[StoredWeight, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(out)
    weight = (torch.randn(out, inner, generator=generator) / 8).to(dtype)
    added = torch.randn(out, generator=generator).to(dtype)
    given: StoredWeight = weight, None, None, added if bias else None, "bf16", 0
    return given, weight.double(), added.double() if bias else torch.zeros(out).double()


def rows_of(rows: int, inner: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(rows, inner, generator=torch.Generator().manual_seed(rows)).to(dtype)


def squares_of(x: torch.Tensor, piece: int) -> torch.Tensor:
    """[pieces, rows], as whoever makes x leaves them."""
    return torch.stack([part.float().square().sum(1) for part in torch.split(x, piece, 1)])


def normed(x: torch.Tensor, gains: torch.Tensor, offset: float) -> torch.Tensor:
    wide = x.double()
    inverse = 1 / (wide.square().mean(-1, keepdim=True) + EPS).sqrt()
    return (wide * inverse * (gains.double() + offset)).to(x.dtype).double()


def check(y: torch.Tensor, expected: torch.Tensor) -> None:
    largest = float(expected.abs().max())
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=ROUNDING[y.dtype] * largest)


FP8, INT4 = FORMATS[0], FORMATS[4]
CASES: list[tuple[WeightFormat | None, int, torch.dtype]] = [
    (None, 1, torch.float32),
    (None, 3, torch.float32),
    (None, 1, torch.bfloat16),
    (None, 16, torch.float16),
    *((fmt, rows, torch.float32) for fmt in FORMATS[:6] for rows in (1, 3)),
    (INT4, 1, torch.bfloat16),
    (INT4, 16, torch.float16),
    (FP8, 1, torch.bfloat16),
    (FP8, 16, torch.float16),
]
cases = pytest.mark.parametrize(("fmt", "rows", "dtype"), CASES)


def weight_of(
    fmt: WeightFormat | None, out: int, inner: int, dtype: torch.dtype, *, bias: bool = False
) -> tuple[StoredWeight, torch.Tensor, torch.Tensor]:
    if fmt is None:
        return float_weight(out, inner, dtype, bias=bias)
    return packed_weight(fmt, out, inner, dtype, bias=bias)


@cases
def test_a_norm_before_a_product(fmt: WeightFormat | None, rows: int, dtype: torch.dtype) -> None:
    """Outputs and units that fill no block; squares given, or summed by the kernel itself."""
    given, weights, bias = weight_of(fmt, 13, 160, dtype, bias=rows == 3)
    x, gains = rows_of(rows, 160, dtype), rows_of(7, 160, dtype)[0]
    expected = normed(x, gains, 0.5) @ weights.T + bias
    for squares in (None, squares_of(x, 32)):
        y = triton_normed_matvec(x, squares, gains, EPS, 0.5, *given)
        assert y.shape == (rows, 13)
        assert y.dtype is dtype
        check(y, expected)


@cases
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_a_gate_after_a_product(
    fmt: WeightFormat | None, rows: int, dtype: torch.dtype, activation: str
) -> None:
    """Gate and up are rounded to the dtype before the one is let through by the other."""
    given, weights, bias = weight_of(fmt, 2 * 13, 160, dtype, bias=rows == 3)
    x, gains = rows_of(rows, 160, dtype), rows_of(7, 160, dtype)[0]
    both = (normed(x, gains, 0.0) @ weights.T + bias).to(dtype).double()
    gate, up = both.chunk(2, dim=1)
    opened = (
        functional.silu(gate) if activation == "silu" else functional.gelu(gate, approximate="tanh")
    )
    y = triton_gated_matvec(x, squares_of(x, 160), gains, EPS, 0.0, *given, activation)
    assert y.shape == (rows, 13)
    # an intermediate that lies between two numbers may be rounded to either
    largest = float((opened * up).abs().max())
    torch.testing.assert_close(y.double(), opened * up, rtol=0, atol=4 * ROUNDING[dtype] * largest)


ROW_BYTES = 4096
"""Of a weight: two turns of a program of one row, which two programs can share."""
ALONE = [case for case in CASES if case[0] in (None, FP8, INT4) and case[2] is torch.float32]


@pytest.mark.parametrize(
    ("fmt", "rows", "dtype", "multiprocessors"),
    [*((*case, 9) for case in CASES), *((*case, 1) for case in ALONE)],
)
def test_a_product_added_to_the_residual_stream(
    fmt: WeightFormat | None,
    rows: int,
    dtype: torch.dtype,
    multiprocessors: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By programs that have their outputs for themselves, and by some that share them.

    Its squares are those of what it stored, and the counters are zero again.
    """
    monkeypatch.setattr(fused_products, "multiprocessors", lambda device: multiprocessors)
    outputs = 112
    inner = ROW_BYTES // dtype.itemsize if fmt is None else ROW_BYTES * (1 + (fmt.number == "int4"))
    given, weights, bias = weight_of(fmt, outputs, inner, dtype, bias=rows == 3)
    row_bytes = given[0].shape[1] * given[0].itemsize
    shared = plan_matvec(rows, outputs, row_bytes, multiprocessors).splits > 1
    assert shared is (multiprocessors > 1)
    x, total = rows_of(rows, inner, dtype), rows_of(rows, outputs, dtype)
    expected = total.double() + x.double() @ weights.T + bias
    squares = triton_added_matvec_(total, x, *given)
    check(total, expected)
    torch.testing.assert_close(squares.sum(0), total.float().square().sum(1), rtol=1e-5, atol=0)
    assert not arrival_counters(total.device).any()


def test_sums_that_are_shared_are_normed_and_gated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_products, "multiprocessors", lambda device: 9)
    for rows in (1, 5):
        given, weights, bias = float_weight(2 * 24, 1600, torch.float32, bias=True)
        x, gains = rows_of(rows, 1600, torch.float32), rows_of(7, 1600, torch.float32)[0]
        both = normed(x, gains, 0.0) @ weights.T + bias
        check(triton_normed_matvec(x, None, gains, EPS, 0.0, *given), both)
        gate, up = both.chunk(2, dim=1)
        y = triton_gated_matvec(x, None, gains, EPS, 0.0, *given, "silu")
        torch.testing.assert_close(y.double(), functional.silu(gate) * up, rtol=1e-4, atol=1e-3)
