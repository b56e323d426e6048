"""The kernels of a decode step of few rows, for GPUs: each is a product and what lies around it."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from llmprof.costs.fusion import FOR_GPUS
from llmprof.engine.kernels.triton.available import runs_triton, triton_trouble


@dataclass(frozen=True, slots=True)
class FusedKernels:
    """See `kernels.triton.fused_products` and `kernels.triton.turn_append`."""

    normed_product: Callable[..., torch.Tensor]
    gated_product: Callable[..., torch.Tensor]
    added_product_: Callable[..., torch.Tensor]
    turn_append_: Callable[..., None]


def runs_fused(device: str) -> bool:
    """Whether `cpu` or `cuda:N` has them."""
    return device != "cpu" and runs_triton(device)


def fused_trouble(device: str) -> str | None:
    """Why `cpu` or `cuda:N` has none, as the end of a sentence; None: it has them."""
    if runs_fused(device):
        return None
    return triton_trouble(device) if torch.device(device).type == "cuda" else FOR_GPUS


@functools.cache
def fused_kernels() -> FusedKernels:
    """Import triton."""
    from llmprof.engine.kernels.triton.fused_products import (
        triton_added_matvec_,
        triton_gated_matvec,
        triton_normed_matvec,
    )
    from llmprof.engine.kernels.triton.turn_append import triton_turn_append_

    return FusedKernels(
        normed_product=triton_normed_matvec,
        gated_product=triton_gated_matvec,
        added_product_=triton_added_matvec_,
        turn_append_=triton_turn_append_,
    )
