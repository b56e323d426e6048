"""The candidates for the read ceiling of a device: raced against each other, the best one counts."""

import importlib.util
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import torch

ReadPasses = Callable[[torch.Tensor, int], object]


@dataclass(frozen=True, slots=True)
class ReadKernel:
    """Reads every byte of a contiguous 1-D float32 tensor, so many times.

    Kernels of our own repeat their passes in one launch, so that caches are not timed by launches.
    """

    name: str
    read: ReadPasses


def read_kernels(device: str, threads: int) -> tuple[ReadKernel, ...]:
    """Kernels that can run on `device` (`cpu` or `cuda:N`) with so many CPU threads."""
    torch_sum = ReadKernel("torch.sum", _each_pass(torch.sum))
    if device == "cpu":
        return (*_numba_kernels(threads), ReadKernel("torch.dot", _dot_of_halves), torch_sum)
    return (*_triton_kernels(device), torch_sum, ReadKernel("torch.amax", _each_pass(torch.amax)))


def _numba_kernels(threads: int) -> tuple[ReadKernel, ...]:
    from llmprof.ceilings.streaming_read import StreamingRead

    return (
        ReadKernel("numba, 4 streams", StreamingRead(threads, 4)),
        ReadKernel("numba, 1 stream", StreamingRead(threads, 1)),
    )


def _triton_kernels(device: str) -> tuple[ReadKernel, ...]:
    """None where triton is missing, or where it finds no C compiler to build its launcher with."""
    if importlib.util.find_spec("triton") is None:
        return ()
    from llmprof.ceilings.triton_read import triton_read

    try:
        triton_read(torch.ones(4096, device=device), 1)
    except (RuntimeError, OSError, subprocess.SubprocessError):
        return ()
    return (ReadKernel("triton, 16-byte loads", triton_read),)


def _each_pass(reduce: Callable[[torch.Tensor], torch.Tensor]) -> ReadPasses:
    def read(data: torch.Tensor, passes: int) -> None:
        for _ in range(passes):
            reduce(data)

    return read


def _dot_of_halves(data: torch.Tensor, passes: int) -> None:
    """Two streams through the first and the second half; each byte is read once."""
    half = data.numel() // 2
    first, second = data[:half], data[half : 2 * half]
    for _ in range(passes):
        torch.dot(first, second)
