"""Tests that only a CUDA device can run: `pytest -m gpu tests/gpu`, or `make gpu-check`."""

from collections.abc import Iterator

import pytest
import torch

DEVICE = "cuda:0"


@pytest.fixture(autouse=True)
def gpu() -> Iterator[str]:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    yield DEVICE
    torch.cuda.synchronize()
