"""Other ways to cut a product of one row among a GPU's programs, beside the one that is in use.

What arithmetic and machine code can say is said in `weight_plan`; which of several that look alike is the
fastest, only a GPU can. The summary has a line of it, and nothing is changed by it.
"""

import functools
from collections.abc import Callable
from dataclasses import astuple
from statistics import median
from typing import Any, Final

import torch

from llmprof.ceilings.pool import Stream, random_pool
from llmprof.ceilings.skinny import SkinnyProbe
from llmprof.ceilings.timing import Stopwatch
from llmprof.ceilings.weight_stream import Weight, WeightStream
from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.kernels.triton import weight_plan
from llmprof.engine.kernels.triton.fused_products import triton_normed_matvec
from llmprof.engine.kernels.triton.weight_plan import Tiling
from llmprof.engine.linear import Linear
from scripts.gpu.job import Job

IN_USE: Final = weight_plan.ONE_ROW
TRIED: Final = (
    IN_USE,
    Tiling(outputs=8, units=64, warps=2, per_multiprocessor=6),
    Tiling(outputs=4, units=128, warps=4, per_multiprocessor=6),
    Tiling(outputs=16, units=128, warps=4, per_multiprocessor=2),
)
FORMATS: Final = (
    WeightFormat("bf16"),
    WeightFormat("int8", 32),
    WeightFormat("int4", 32, symmetric=False),
)
SHAPE: Final = (28_672, 4096)
"""[out_features, in_features]: gate and up of a Llama 3 of 8 billion parameters."""
_POOL_BYTES: Final = 1 << 30
_LEAST_LEFT_S: Final = 2.0
_PASSES: Final = 15


def try_tilings(job: Job) -> None:
    """Bytes per second of each format and tiling, written down format by format."""
    found: dict[str, Any] = {"in_use": name_of(IN_USE)}
    pool = random_pool(_POOL_BYTES, job.device, torch.bfloat16)
    stream, stopwatch = WeightStream(Stream(pool)), Stopwatch(job.device)
    with torch.inference_mode():
        for fmt in FORMATS:
            rates: dict[str, float] = {}
            for tiling in TRIED:
                if job.left_s < _LEAST_LEFT_S:
                    break
                rates[name_of(tiling)] = rate_of(tiling, fmt, stream, stopwatch)
            found[fmt.name] = rates
            job.found("tilings", found)


def start_each(device: str) -> None:
    """Every kernel once, with weights that nobody reads: where they are compiled ahead."""
    stream = WeightStream(
        Stream(torch.empty(_POOL_BYTES // 2, dtype=torch.bfloat16, device=device))
    )
    x = torch.empty(1, SHAPE[1], dtype=torch.bfloat16, device=device)
    try:
        for fmt in FORMATS:
            for weight_plan.ONE_ROW in TRIED:
                normed_product(stream.take(fmt, *SHAPE))(x)
    finally:
        weight_plan.ONE_ROW = IN_USE


def name_of(tiling: Tiling) -> str:
    """8x128x4x3: outputs, units, warps, programs per multiprocessor."""
    return "x".join(map(str, astuple(tiling)))


def rate_of(tiling: Tiling, fmt: WeightFormat, stream: WeightStream, stopwatch: Stopwatch) -> float:
    """Of the kernel of a decode step, with the norm before it: bytes of weights per second."""
    weight_plan.ONE_ROW = tiling
    try:
        probe = SkinnyProbe(
            [SHAPE],
            1,
            stream,
            stopwatch,
            working_set_bytes=stream.nbytes,
            formats=[fmt],
            make_product=normed_product,
        )
        return median(probe.read(1.0, most_passes=_PASSES).passes_bytes_per_s)
    finally:
        weight_plan.ONE_ROW = IN_USE


def normed_product(weight: Weight) -> Callable[[torch.Tensor], torch.Tensor]:
    """The product by a weight, as a step starts it: squares of x are known."""
    stored = Linear(weight).stored
    return functools.partial(_multiply, stored)


def _multiply(stored: Any, x: torch.Tensor) -> torch.Tensor:
    squares, gains = _around(x.shape[1], x.dtype, str(x.device))
    return triton_normed_matvec(x, squares, gains, 1e-5, 0.0, *stored)


@functools.cache
def _around(size: int, dtype: torch.dtype, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(size // 8, 1, device=device), torch.ones(size, dtype=dtype, device=device)
