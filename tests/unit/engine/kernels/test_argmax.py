import math

import pytest
import torch

from llmprof.engine.kernels.argmax import argmax


def found(logits: torch.Tensor) -> list[int]:
    """By way of a column of a wider array, which nothing else may touch."""
    out = torch.full((logits.shape[0], 3), -1)
    argmax(logits, out[:, 1:2])
    assert bool((out[:, ::2] == -1).all())
    return [int(index) for index in out[:, 1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "size"), [(1, 4096), (3, 200), (64, 3000), (2, 7), (5, 64)])
def test_largest_of_each_row(dtype: torch.dtype, rows: int, size: int) -> None:
    drawn = torch.randn((rows, size), generator=torch.Generator().manual_seed(size))
    best = torch.randint(size, (rows,), generator=torch.Generator().manual_seed(rows))
    drawn[torch.arange(rows), best] = 10.0
    assert found(drawn.to(dtype)) == best.tolist()


@pytest.mark.parametrize("places", [(3, 90), (70, 71), (0, 99), (98, 99), (17, 33, 65)])
def test_the_first_of_equals(places: tuple[int, ...]) -> None:
    logits = torch.zeros(1, 100)
    logits[0, list(places)] = 1.0
    assert found(logits) == [min(places)]


def test_what_is_no_number_is_passed_over() -> None:
    logits = torch.tensor([[math.nan, 1.0, math.nan, 2.0], [-math.inf] * 4])
    assert found(logits) == [3, 0]
