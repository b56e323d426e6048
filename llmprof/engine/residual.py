"""What a block adds to the residual stream."""

import torch

from llmprof.engine.kernels.launch import is_recorded, runs_native
from llmprof.engine.kernels.residual import add_ as add_native_


def add_(x: torch.Tensor, y: torch.Tensor) -> None:
    """Add y to x, both [rows, hidden_size].

    torch's addition costs less to start from Python than one of our own; a recorded step must not
    come back to Python for it.
    """
    if is_recorded() and runs_native(x):
        add_native_(x, y)
    else:
        x.add_(y)
