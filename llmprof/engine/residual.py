"""What a block adds to the residual stream."""

from typing import Final

import torch

from llmprof.engine.kernels.launch import is_recorded, runs_native
from llmprof.engine.kernels.residual import add_ as add_native_
from llmprof.engine.linear import Linear

_MANY_BYTES: Final = 64 << 10


def add_(x: torch.Tensor, y: torch.Tensor) -> None:
    """Add y to x, both [rows, hidden_size].

    torch's addition costs less to start from Python than one of our own, which takes half the time
    of many rows; a recorded step must not come back to Python for it.
    """
    if runs_native(x) and (is_recorded() or x.nbytes >= _MANY_BYTES):
        add_native_(x, y)
    else:
        x.add_(y)


def add_product_(x: torch.Tensor, projection: Linear, y: torch.Tensor) -> None:
    """Add the projection of y [rows, inner] to x [rows, hidden_size].

    On a GPU in the kernel of the product, which then writes no result for another one to read.
    """
    if projection.adds(len(y)):
        projection.add_to_(x, y)
    else:
        add_(x, projection(y))


def kernel_name(projection: Linear, rows: int) -> str | None:
    """What adds the projection of so many rows, where it is part of the product; else None."""
    if not projection.adds(rows):
        return None
    return "llmprof::triton_matvec_add_" if projection.format.packed else "torch.Tensor.addmm_"
