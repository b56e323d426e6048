"""RMS norm in one pass over each row, for CPUs."""

import functools
from typing import Any

import torch

from llmprof.engine.kernels.launch import dtype_name, launch, observable
from llmprof.engine.kernels.native import KernelBody, NativeKernel, compile_kernel
from llmprof.engine.kernels.vector_ir import STORED_TYPES, VectorCode, index_constant
from llmprof.engine.kernels.vector_math import for_each, scalar_of, total, unary

_X, _GAINS, _OUT, _ROWS, _X_STRIDE, _OUT_STRIDE, _GROUPS, _NUM_ARGUMENTS = range(8)


@observable("rms_norm", fake=lambda x, *_: x.new_empty(x.shape))
def rms_norm(x: torch.Tensor, gains: torch.Tensor, eps: float, offset: float = 0.0) -> torch.Tensor:
    """A new tensor with each row's RMS norm, computed in float32 and rounded once.

    Args:
        x: [rows, size], rows at any stride, on the CPU; fp32, bf16 or fp16.
        gains: [size], contiguous, of the same dtype.
        eps: added to the mean square.
        offset: added to the gains.
    """
    rows, size = x.shape
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    launch(
        _kernel(dtype_name(x), size, eps, offset),
        2 * out.nbytes,
        x.data_ptr(),
        gains.data_ptr(),
        out.data_ptr(),
        rows,
        x.stride(0),
        size,
        1,
    )
    return out


@observable("rms_norm_heads_", mutates=("heads",))
def rms_norm_heads_(
    heads: torch.Tensor, gains: torch.Tensor, eps: float, offset: float = 0.0
) -> None:
    """Norm every head of [rows, heads, head_dim] by itself, in place; gains [heads, head_dim]."""
    rows, num_heads, size = heads.shape
    stride = heads.stride(0)
    launch(
        _kernel(dtype_name(heads), size, eps, offset),
        2 * heads.nbytes,
        heads.data_ptr(),
        gains.data_ptr(),
        heads.data_ptr(),
        rows,
        stride,
        stride,
        num_heads,
    )


@functools.cache
def _kernel(dtype: str, size: int, eps: float, offset: float) -> NativeKernel:
    build = functools.partial(_norm_rows, dtype=dtype, size=size, eps=eps, offset=offset)
    return compile_kernel(f"rms_norm_{dtype}_{size}", _NUM_ARGUMENTS, build)


def _norm_rows(body: KernelBody, *, dtype: str, size: int, eps: float, offset: float) -> None:
    """This thread's rows: each has `groups` adjacent parts of `size` numbers with their own gains."""
    builder, code, element = body.builder, body.code, STORED_TYPES[dtype]
    x, gains, out = (body.pointer(slot, element) for slot in (_X, _GAINS, _OUT))
    x_stride, out_stride, groups = map(body.integer, (_X_STRIDE, _OUT_STRIDE, _GROUPS))
    with code.loop(*body.share(body.integer(_ROWS)), 1) as rows:
        x_row = builder.gep(x, [builder.mul(rows.index, x_stride)])
        out_row = builder.gep(out, [builder.mul(rows.index, out_stride)])
        with code.loop(index_constant(0), groups, 1) as parts:
            start = [builder.mul(parts.index, index_constant(size))]
            source, gain, target = (builder.gep(base, start) for base in (x_row, gains, out_row))
            _norm(code, source, gain, target, dtype=dtype, size=size, eps=eps, offset=offset)


def _norm(
    code: VectorCode,
    x: Any,
    gains: Any,
    out: Any,
    *,
    dtype: str,
    size: int,
    eps: float,
    offset: float,
) -> None:
    builder = code.builder

    def square(part: VectorCode, index: Any) -> Any:
        number = part.load(x, index, dtype)
        return part.mul(number, number)

    def scaled(part: VectorCode, index: Any) -> None:
        number = part.mul(part.load(x, index, dtype), part.broadcast(scale))
        gain = part.load(gains, index, dtype)
        if offset:
            gain = part.add(gain, part.splat(offset))
        part.store(part.mul(number, gain), out, index, dtype)

    single = VectorCode(builder, lanes=1)
    mean = builder.fdiv(total(code, size, square), single.splat(size))
    root = unary(single, "llvm.sqrt", single.add(mean, single.splat(eps)))
    scale = scalar_of(single, builder.fdiv(single.splat(1.0), root))
    for_each(code, size, scaled)
