"""Rotary position embedding in place, for CPUs."""

import functools
from typing import Any

import torch

from llmprof.engine.kernels.launch import dtype_name, launch, observable
from llmprof.engine.kernels.native import KernelBody, NativeKernel, compile_kernel
from llmprof.engine.kernels.vector_ir import STORED_TYPES, VectorCode, index_constant
from llmprof.engine.kernels.vector_math import for_each

_HEADS, _COS, _SIN, _ROWS, _ROW_STRIDE, _NUM_HEADS, _HEAD_STRIDE, _NUM_ARGUMENTS = range(8)


@observable("rotate_", mutates=("heads",))
def rotate_(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Turn channel i of every head against channel i + rotary_dim / 2, by its row's angles.

    Computed in float32 and rounded once.

    Args:
        heads: [rows, heads, rotary_dim], rows and heads at any stride and channels side by side, on
            the CPU; fp32, bf16 or fp16.
        cos: [rows, 1, rotary_dim], contiguous, of the same dtype.
        sin: as `cos`, negative in the first half: x * cos + swapped x * sin.
    """
    rows, num_heads, rotary_dim = heads.shape
    launch(
        _kernel(dtype_name(heads), rotary_dim),
        2 * heads.nbytes,
        heads.data_ptr(),
        cos.data_ptr(),
        sin.data_ptr(),
        rows,
        heads.stride(0),
        num_heads,
        heads.stride(1),
    )


@functools.cache
def _kernel(dtype: str, rotary_dim: int) -> NativeKernel:
    build = functools.partial(_rotate_rows, dtype=dtype, rotary_dim=rotary_dim)
    return compile_kernel(f"rotate_{dtype}_{rotary_dim}", _NUM_ARGUMENTS, build)


def _rotate_rows(body: KernelBody, *, dtype: str, rotary_dim: int) -> None:
    builder, code, element = body.builder, body.code, STORED_TYPES[dtype]
    heads, cos, sin = (body.pointer(slot, element) for slot in (_HEADS, _COS, _SIN))
    row_stride, num_heads = body.integer(_ROW_STRIDE), body.integer(_NUM_HEADS)
    head_stride = body.integer(_HEAD_STRIDE)
    with code.loop(*body.share(body.integer(_ROWS)), 1) as rows:
        row = builder.gep(heads, [builder.mul(rows.index, row_stride)])
        turn = [builder.mul(rows.index, index_constant(rotary_dim))]
        turn_cos, turn_sin = builder.gep(cos, turn), builder.gep(sin, turn)
        with code.loop(index_constant(0), num_heads, 1) as each:
            head = builder.gep(row, [builder.mul(each.index, head_stride)])
            _rotate(code, head, turn_cos, turn_sin, dtype=dtype, half=rotary_dim // 2)


def _rotate(code: VectorCode, head: Any, cos: Any, sin: Any, *, dtype: str, half: int) -> None:
    builder = code.builder

    def pair(part: VectorCode, index: Any) -> None:
        opposite = builder.add(index, index_constant(half))
        first, second = (part.load(head, at, dtype) for at in (index, opposite))
        for at, own, other in ((index, first, second), (opposite, second, first)):
            turned = part.mul(other, part.load(sin, at, dtype))
            turned = part.fma(own, part.load(cos, at, dtype), turned)
            part.store(turned, head, at, dtype)

    for_each(code, half, pair)
