"""The residual stream, and what a block adds to it."""

from dataclasses import dataclass
from typing import Final

import torch

from llmprof.engine.kernels.fused import fused_kernels
from llmprof.engine.kernels.launch import is_recorded, runs_native
from llmprof.engine.kernels.residual import add_ as add_native_
from llmprof.engine.linear import Linear

_MANY_BYTES: Final = 64 << 10


@dataclass(slots=True)
class ResidualStream:
    """What the blocks of a step read and add to."""

    x: torch.Tensor
    """[rows, hidden_size], changed in place."""
    fused: bool = False
    """So few rows, on such a device, that a norm is part of the product after it (`kernels.fused`)."""
    squares: torch.Tensor | None = None
    """Sums of squares of pieces of each row, as the product that made x left them."""

    def add(self, y: torch.Tensor) -> None:
        """Add y [rows, hidden_size].

        torch's addition costs less to start from Python than one of our own, which takes half the
        time of many rows; a recorded step must not come back to Python for it.
        """
        x, self.squares = self.x, None
        if runs_native(x) and (is_recorded() or x.nbytes >= _MANY_BYTES):
            add_native_(x, y)
        else:
            x.add_(y)

    def add_product(self, projection: Linear, y: torch.Tensor) -> None:
        """Add the projection of y [rows, inner].

        On a GPU in the kernel of the product, which then writes no result for another one to read.
        """
        if self.fused:
            add_ = fused_kernels().added_product_
            self.squares = add_(self.x, y.contiguous(), *projection.stored)
        elif projection.adds(len(y)):
            self.squares = None
            projection.add_to_(self.x, y)
        else:
            self.add(projection(y))


def kernel_name(projection: Linear, rows: int, *, fused: bool = False) -> str | None:
    """What adds the projection of so many rows, where it is part of the product; else None."""
    if fused:
        return "llmprof::triton_added_matvec_"
    if not projection.adds(rows):
        return None
    return "llmprof::triton_matvec_add_" if projection.format.packed else "torch.Tensor.addmm_"
