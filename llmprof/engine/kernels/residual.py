"""Addition in place, for steps that are replayed without Python; for CPUs."""

import functools

import torch

from llmprof.engine.kernels.launch import dtype_name, launch, observable
from llmprof.engine.kernels.native import KernelBody, NativeKernel, compile_kernel
from llmprof.engine.kernels.vector_ir import STORED_TYPES, VectorCode, index_constant
from llmprof.engine.kernels.vector_math import for_each

_X, _Y, _ROWS, _NUM_ARGUMENTS = range(4)


@observable("add_", mutates=("x",))
def add_(x: torch.Tensor, y: torch.Tensor) -> None:
    """Add y to x in float32, rounded once.

    Args:
        x: [rows, size], contiguous, on the CPU; fp32, bf16 or fp16.
        y: as x.
    """
    rows, size = x.shape
    launch(_kernel(dtype_name(x), size), 3 * x.nbytes, x.data_ptr(), y.data_ptr(), rows)


@functools.cache
def _kernel(dtype: str, size: int) -> NativeKernel:
    build = functools.partial(_add_rows, dtype=dtype, size=size)
    return compile_kernel(f"add_{dtype}_{size}", _NUM_ARGUMENTS, build)


def _add_rows(body: KernelBody, *, dtype: str, size: int) -> None:
    builder, code, element = body.builder, body.code, STORED_TYPES[dtype]
    x, y = body.pointer(_X, element), body.pointer(_Y, element)
    with code.loop(*body.share(body.integer(_ROWS)), 1) as rows:
        start = [builder.mul(rows.index, index_constant(size))]
        x_row, y_row = builder.gep(x, start), builder.gep(y, start)

        def added(part: VectorCode, index: object) -> None:
            total = part.add(part.load(x_row, index, dtype), part.load(y_row, index, dtype))
            part.store(total, x_row, index, dtype)

        for_each(code, size, added)
