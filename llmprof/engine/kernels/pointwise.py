"""The kernels between products, for GPUs: what else would be several of torch's."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from llmprof.engine.kernels.triton.available import runs_triton


@dataclass(frozen=True, slots=True)
class PointwiseKernels:
    """Each named as the one for CPUs whose arguments it has."""

    silu_mul: Callable[[torch.Tensor], torch.Tensor]
    gelu_tanh_mul: Callable[[torch.Tensor], torch.Tensor]
    rms_norm: Callable[[torch.Tensor, torch.Tensor, float, float], torch.Tensor]
    rms_norm_heads_: Callable[[torch.Tensor, torch.Tensor, float, float], None]
    rotate_: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]
    kv_append_: Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor], None]


def gpu_kernels(where: torch.Tensor | str) -> PointwiseKernels | None:
    """For a tensor, or for `cpu` or `cuda:N`; None on a CPU, and where Triton cannot run.

    None in a step that torch.compile traces, too: it fuses such ops by itself.
    """
    if torch.compiler.is_compiling():
        return None
    if isinstance(where, torch.Tensor):
        if where.is_cpu:
            return None
        where = str(where.device)
    return _triton_kernels() if runs_triton(where) else None


@functools.cache
def _triton_kernels() -> PointwiseKernels:
    """Import triton."""
    from llmprof.engine.kernels.triton.gate import triton_gelu_tanh_mul, triton_silu_mul
    from llmprof.engine.kernels.triton.kv_append import triton_kv_append_
    from llmprof.engine.kernels.triton.norm import triton_rms_norm, triton_rms_norm_heads_
    from llmprof.engine.kernels.triton.rotary import triton_rotate_

    return PointwiseKernels(
        silu_mul=triton_silu_mul,
        gelu_tanh_mul=triton_gelu_tanh_mul,
        rms_norm=triton_rms_norm,
        rms_norm_heads_=triton_rms_norm_heads_,
        rotate_=triton_rotate_,
        kv_append_=triton_kv_append_,
    )
