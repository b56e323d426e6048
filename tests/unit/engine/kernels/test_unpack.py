"""Packed rows as floats, against the formats' definitions."""

import numpy as np
import pytest
import torch

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.kernels.unpack import unpack_rows_
from tests.packed_weights import FORMATS, random_packed


def unpacked(
    fmt: WeightFormat, in_features: int, out: torch.Tensor, ids: list[int] | None, first: int = 0
) -> np.typing.NDArray[np.float64]:
    """Unpack into `out`; returns the weights that all 9 rows of the matrix stand for."""
    packed, weights = random_packed(fmt, 9, in_features)
    numbers = None if ids is None else torch.tensor(ids)
    unpack_rows_(
        out,
        packed.codes,
        packed.scales,
        packed.minimums,
        numbers,
        first,
        fmt.number,
        fmt.group_size or 0,
    )
    return weights


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_rows_by_number(fmt: WeightFormat) -> None:
    out = torch.empty(4, 576)
    weights = unpacked(fmt, 576, out, [8, 0, 3, 3])
    np.testing.assert_allclose(out.numpy(), weights[[8, 0, 3, 3]], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("fmt", FORMATS[::3], ids=lambda fmt: fmt.name)
def test_adjacent_rows_rounded_to_the_dtype_that_is_asked_for(fmt: WeightFormat) -> None:
    out = torch.empty(5, 96, dtype=torch.bfloat16)
    weights = unpacked(fmt, 96, out, None, first=2)
    expected = torch.from_numpy(weights[2:7]).float().bfloat16()
    # a sum that ends between two bf16 numbers may go either way after another order of rounding
    torch.testing.assert_close(out.float(), expected.float(), rtol=2**-8, atol=0)


def test_int8_rows_of_any_length() -> None:
    out = torch.empty(3, 45)
    weights = unpacked(WeightFormat("int8"), 45, out, None, first=6)
    np.testing.assert_allclose(out.numpy(), weights[6:], rtol=1e-6)
