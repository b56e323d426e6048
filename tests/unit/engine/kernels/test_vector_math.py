"""Vector functions, run as kernels of one vector per 16 numbers and one number for the rest."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from llmprof.engine.kernels.native import KernelBody, compile_kernel
from llmprof.engine.kernels.vector_ir import F32, VectorCode
from llmprof.engine.kernels.vector_math import (
    exp2,
    for_each,
    join_lanes,
    larger,
    reciprocal,
    short_exp2,
    silu,
)


def applied(function: Callable[[VectorCode, Any], Any], numbers: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(numbers)

    def build(body: KernelBody) -> None:
        source, target = body.pointer(0, F32), body.pointer(1, F32)

        def each(code: VectorCode, index: Any) -> None:
            code.store(function(code, code.load(source, index, "fp32")), target, index, "fp32")

        for_each(body.code, numbers.numel(), each)

    compile_kernel("applied", 2, build).alone(numbers.data_ptr(), out.data_ptr())
    return out


def test_exp2_is_exact_to_float32() -> None:
    x = torch.linspace(-100, 127, 5003)
    expected = torch.exp2(x.double())
    error = ((applied(exp2, x).double() - expected) / expected).abs().max()
    assert float(error) < 2e-7  # float32 keeps 1.2e-7


def test_exp2_ends_before_numbers_that_are_slow_or_infinite() -> None:
    x = torch.tensor([-1e30, -101.0, 200.0, math.inf])
    assert applied(exp2, x).tolist() == [2.0**-100, 2.0**-100, 2.0**127, 2.0**127]


def test_short_exp2_is_exact_to_bf16() -> None:
    x = torch.linspace(-100, 0, 5003)
    expected = torch.exp2(x.double())
    error = ((applied(short_exp2, x).double() - expected) / expected).abs().max()
    assert float(error) < 8e-5  # bf16 keeps 2e-3
    assert applied(short_exp2, torch.full((17,), -1e30)).tolist() == pytest.approx([2.0**-100] * 17)


def test_reciprocals_are_exact_to_float32() -> None:
    x = torch.cat((torch.logspace(-30, 37, 1001), -torch.logspace(-5, 5, 20)))
    error = (applied(reciprocal, x).double() * x.double() - 1).abs().max()
    assert float(error) < 2.5e-7


def test_silu() -> None:
    x = torch.cat((torch.linspace(-30, 30, 1001), torch.tensor([0.0, -500.0, 500.0])))
    expected = x.double() / (1 + torch.exp(-x.double()))
    # the exponential's argument is rounded to float32, which is 30 * 2^-24 at the ends
    torch.testing.assert_close(applied(silu, x).double(), expected, atol=1e-30, rtol=2e-6)


@pytest.mark.parametrize("count", [1, 2, 4, 16])
def test_lanes_are_joined_in_neighbourhoods(count: int) -> None:
    x = torch.tensor([5.0, 1, 7, 2, 9, 3, 0, 4, 8, 6, 11, 13, 12, 15, 10, 14])
    found = applied(lambda code, v: join_lanes(code, v, min(count, code.lanes), larger), x)
    expected = x.view(-1, count).amax(dim=1, keepdim=True).expand(-1, count).flatten()
    assert torch.equal(found, expected)
