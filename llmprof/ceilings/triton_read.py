"""A read kernel for NVIDIA GPUs that loads 16 bytes per thread and instruction."""

import torch
import triton
import triton.language as tl

from llmprof.engine.kernels.triton.gpu import on_device_of

_BLOCK_WORDS = 4096
"""Words of 4 bytes per iteration of one program: 4 loads of 16 bytes by each of 256 threads."""
_PROGRAMS_PER_MULTIPROCESSOR = 8


# Triton compiles annotations too, and knows no others than its own.
@triton.jit  # type: ignore[untyped-decorator]
def _read(words, partial, num_words, passes, block: tl.constexpr):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    step = tl.num_programs(0).to(tl.int64) * block
    lanes = tl.arange(0, block)
    total = tl.zeros((block,), dtype=tl.int32)
    for _ in range(passes):
        start = program.to(tl.int64) * block
        while start < num_words:
            offsets = start + lanes
            # .cg keeps it out of L1: small buffers are meant to come from L2.
            total += tl.load(words + offsets, offsets < num_words, other=0, cache_modifier=".cg")
            start += step
    tl.store(partial + program, tl.sum(total))


def triton_read(data: torch.Tensor, passes: int) -> torch.Tensor:
    """Sums (int32, wrapped) of the parts that the programs read; `data` is contiguous on a GPU."""
    words = data.view(torch.int32)
    blocks = triton.cdiv(words.numel(), _BLOCK_WORDS)
    programs = min(blocks, _PROGRAMS_PER_MULTIPROCESSOR * _num_multiprocessors(data.device))
    partial = torch.empty(programs, dtype=torch.int32, device=data.device)
    with on_device_of(data):
        _read[(programs,)](words, partial, words.numel(), passes, block=_BLOCK_WORDS, num_warps=8)
    return partial


def _num_multiprocessors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
