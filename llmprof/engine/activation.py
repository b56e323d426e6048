"""SwiGLU (Shazeer 2020): what one half of a projection lets through of the other."""

import torch
from torch.nn import functional

from llmprof.engine.kernels.activation import silu_mul
from llmprof.engine.kernels.launch import runs_native


def gated(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, for [rows, 2 * inner] with the gate first; [rows, inner], new."""
    if runs_native(gate_up):
        return silu_mul(gate_up)
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)


def kernel_name(device: str) -> str:
    return "llmprof::silu_mul" if runs_native(device) else "torch.nn.functional.silu, torch.mul"
