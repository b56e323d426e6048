"""SwiGLU and GeGLU (Shazeer 2020): what one half of a projection lets through of the other."""

import torch
from torch.nn import functional

from llmprof.engine.kernels.activation import gelu_tanh_mul, silu_mul
from llmprof.engine.kernels.launch import runs_native
from llmprof.engine.kernels.pointwise import gpu_kernels


def gated(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, for [rows, 2 * inner] with the gate first; [rows, inner], new."""
    if runs_native(gate_up):
        return silu_mul(gate_up)
    kernels = gpu_kernels(gate_up)
    if kernels is not None:
        return kernels.silu_mul(gate_up)
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)


def gated_by_gelu(gate_up: torch.Tensor) -> torch.Tensor:
    """gelu(gate) * up by gelu's approximation with tanh; as `gated`."""
    if runs_native(gate_up):
        return gelu_tanh_mul(gate_up)
    kernels = gpu_kernels(gate_up)
    if kernels is not None:
        return kernels.gelu_tanh_mul(gate_up)
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.gelu(gate, approximate="tanh").mul_(up)


def kernel_name(device: str, activation: str = "silu") -> str:
    name = "gelu" if activation == "gelu_tanh" else activation
    if runs_native(device):
        return f"llmprof::{activation}_mul"
    if gpu_kernels(device) is not None:
        return f"llmprof::triton_{activation}_mul"
    return f"torch.nn.functional.{name}, torch.mul"
