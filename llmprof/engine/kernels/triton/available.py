"""Whether Triton kernels can run on a GPU, asked before triton is imported."""

import functools
import importlib.util
import subprocess
from contextlib import AbstractContextManager

import torch


def runs_triton(device: str) -> bool:
    """Whether kernels of this package run on `cpu` or `cuda:N`; on a CPU never."""
    return torch.device(device).type == "cuda" and triton_trouble(device) is None


@functools.cache
def triton_trouble(device: str) -> str | None:
    """Why no Triton kernel can run on `cuda:N`, as the end of a sentence; None where one did run."""
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    from llmprof.engine.kernels.triton.add_splits import add_splits

    try:
        add_splits(torch.zeros(1, 1, 1, device=device), None, torch.float32)
    except (RuntimeError, OSError, ImportError, subprocess.SubprocessError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        return f"triton cannot build kernels here ({reason[0]})"
    return None


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Of a GPU; 1 where Triton's interpreter takes its place."""
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@functools.cache
def converts_fp8(device: torch.device) -> bool:
    """Whether the GPU converts float8_e4m3fn itself (compute capability 8.9: Ada, Hopper and later)."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


def on_device_of(tensor: torch.Tensor) -> AbstractContextManager[None]:
    """Triton launches on torch's current device: make it that of a tensor, if it is on a GPU."""
    device: AbstractContextManager[None] = torch.cuda.device_of(tensor)  # type: ignore[no-untyped-call]
    return device
