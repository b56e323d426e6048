"""What a kernel of ours asks about the GPU that it runs on."""

import functools
from contextlib import AbstractContextManager

import torch


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
