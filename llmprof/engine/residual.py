"""What a block adds to the residual stream."""

from typing import Final

import torch

from llmprof.engine.kernels.launch import is_recorded, runs_native
from llmprof.engine.kernels.residual import add_ as add_native_

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
