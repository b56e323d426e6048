"""Programs that share a result: the last one to finish joins what all of them left in memory.

In the launch that made the parts, where a kernel of its own would start, wait and drain.
"""

import functools
from typing import Final

import torch
import triton
import triton.language as tl

MOST_SHARED: Final = 4096
"""Results that programs of one launch can share; launches with more have a program for each."""


@functools.cache
def arrival_counters(device: torch.device) -> torch.Tensor:
    """One number per shared result, zero before and after every launch.

    So a launch can be repeated without the host, by a CUDA graph too. Kernels of one device that
    use them run one after the other, as those of one stream do.
    """
    return torch.zeros(MOST_SHARED, dtype=torch.int32, device=device)


@triton.jit
def is_last(counters, nth, programs):  # type: ignore[no-untyped-def]
    """Whether the `programs` that share result `nth` have all stored their parts; resets its counter.

    The barrier puts the stores of all threads before the addition, which releases them to the whole
    GPU and acquires those of the others (PTX memory model: causality order through bar.sync).
    """
    tl.debug_barrier()
    before = tl.atomic_add(counters + nth, 1, sem="acq_rel", scope="gpu")
    last = before == programs - 1
    if last:
        tl.store(counters + nth, 0)
    return last
