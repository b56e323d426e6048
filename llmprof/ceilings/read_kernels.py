"""The candidates for the read ceiling of a device: raced against each other, the best one counts."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from llmprof.engine.kernels.triton.available import triton_trouble
from llmprof.engine.linear import Linear, kernel_name

ReadPasses = Callable[[torch.Tensor, int], object]

_IN_FEATURES = 2048


@dataclass(frozen=True, slots=True)
class ReadKernel:
    """Reads every byte of a contiguous 1-D float32 tensor, so many times."""

    name: str
    read: ReadPasses
    in_one_launch: bool = False
    """All passes in one launch, so that a buffer in cache is not timed by its launches."""


def read_kernels(device: str) -> tuple[ReadKernel, ...]:
    """Kernels that can run on `device` (`cpu` or `cuda:N`); on a CPU with torch's threads."""
    torch_sum = ReadKernel("torch.sum", _each_pass(torch.sum))
    if device == "cpu":
        engine = ReadKernel(kernel_name(1, device), _multiply_by_vector)
        return (*_streaming_kernels(), engine, ReadKernel("torch.dot", _dot_of_halves), torch_sum)
    return (*_triton_kernels(device), torch_sum, ReadKernel("torch.amax", _each_pass(torch.amax)))


def _streaming_kernels() -> tuple[ReadKernel, ...]:
    from llmprof.ceilings.streaming_read import StreamingRead

    return (
        ReadKernel("llmprof::read 4x prefetch", StreamingRead(4, prefetch_bytes=1024), True),
        ReadKernel("llmprof::read 4x", StreamingRead(4), True),
        ReadKernel("llmprof::read 1x", StreamingRead(1), True),
    )


def _triton_kernels(device: str) -> tuple[ReadKernel, ...]:
    """None where triton is missing, or builds no kernels: without a C compiler, or for too new a GPU."""
    if triton_trouble(device) is not None:
        return ()
    from llmprof.ceilings.triton_read import triton_read

    return (ReadKernel("triton, 16-byte loads", triton_read, in_one_launch=True),)


def _each_pass(reduce: Callable[[torch.Tensor], torch.Tensor]) -> ReadPasses:
    def read(data: torch.Tensor, passes: int) -> None:
        for _ in range(passes):
            reduce(data)

    return read


def _multiply_by_vector(data: torch.Tensor, passes: int) -> None:
    """The engine's product of a decode step: no ceiling may be below what the engine itself reads.

    Numbers that fill no row of the matrix are left out: less than 4 KiB.
    """
    weights = data.view(torch.bfloat16)
    rows = weights.numel() // _IN_FEATURES
    product = Linear(weights[: rows * _IN_FEATURES].view(rows, _IN_FEATURES))
    x = torch.ones(1, _IN_FEATURES, dtype=torch.bfloat16)
    for _ in range(passes):
        product(x)


def _dot_of_halves(data: torch.Tensor, passes: int) -> None:
    """Two streams through the first and the second half; each byte is read once."""
    half = data.numel() // 2
    first, second = data[:half], data[half : 2 * half]
    for _ in range(passes):
        torch.dot(first, second)
