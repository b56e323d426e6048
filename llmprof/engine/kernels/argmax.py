"""The most probable token of each row of logits, for CPUs."""

import functools
from typing import Any, Final

import torch
from llvmlite import ir

from llmprof.engine.kernels.launch import dtype_name, launch, observable
from llmprof.engine.kernels.native import KernelBody, NativeKernel, compile_kernel
from llmprof.engine.kernels.vector_ir import (
    I32,
    I64,
    LANES,
    STORED_TYPES,
    VectorCode,
    index_constant,
)
from llmprof.engine.kernels.vector_math import join_all, join_lanes, larger, scalar_of

_LOGITS, _OUT, _ROWS, _OUT_STRIDE, _NUM_ARGUMENTS = range(5)
_CHAINS: Final = 4
"""Comparisons wait for each other: so many run side by side."""
_LEAST: Final = -float("inf")
_NO_INDEX: Final = (1 << 31) - 1


@observable("argmax", mutates=("out",))
def argmax(logits: torch.Tensor, out: torch.Tensor) -> None:
    """The first index of each row's largest number; a NaN is never the largest.

    Five times as fast as `torch.argmax(out=)` on one bf16 row of 49152.

    Args:
        logits: [rows, vocab_size], contiguous, on the CPU; fp32, bf16 or fp16.
        out: int64 [rows, 1] at any stride.
    """
    rows, vocab_size = logits.shape
    kernel = _kernel(dtype_name(logits), vocab_size)
    launch(kernel, logits.nbytes, logits.data_ptr(), out.data_ptr(), rows, out.stride(0))


@functools.cache
def _kernel(dtype: str, vocab_size: int) -> NativeKernel:
    build = functools.partial(_search_rows, dtype=dtype, size=vocab_size)
    return compile_kernel(f"argmax_{dtype}_{vocab_size}", _NUM_ARGUMENTS, build)


def _search_rows(body: KernelBody, *, dtype: str, size: int) -> None:
    builder, code = body.builder, body.code
    logits, out = body.pointer(_LOGITS, STORED_TYPES[dtype]), body.pointer(_OUT, I64)
    out_stride = body.integer(_OUT_STRIDE)
    with code.loop(*body.share(body.integer(_ROWS)), 1) as rows:
        row = builder.gep(logits, [builder.mul(rows.index, index_constant(size))])
        found = _search(code, row, dtype=dtype, size=size)
        target = builder.gep(out, [builder.mul(rows.index, out_stride)])
        builder.store(builder.zext(found, I64), target)


def _search(code: VectorCode, row: Any, *, dtype: str, size: int) -> Any:
    """The i32 index of the first largest element."""
    builder, single = code.builder, VectorCode(code.builder, lanes=1)
    step = _CHAINS * LANES
    whole = size // step * step
    chains = [code.splat(_LEAST)] * _CHAINS + [code.splat_bits(_NO_INDEX)] * _CHAINS
    with code.loop(index_constant(0), index_constant(whole), step, chains) as loop:
        for chain in range(_CHAINS):
            index = builder.add(loop.index, index_constant(chain * LANES))
            best, at = loop.carried[chain], loop.carried[_CHAINS + chain]
            number = code.load(row, index, dtype)
            loop.carried[chain], loop.carried[_CHAINS + chain] = _better(
                builder, best, at, number, _lane_indices(code, index)
            )
    value, at = _first_largest(code, loop.results[:_CHAINS], loop.results[_CHAINS:])
    rest = [single.broadcast(value), single.broadcast(at)]
    with code.loop(index_constant(whole), index_constant(size), 1, rest) as loop:
        number = single.load(row, loop.index, dtype)
        best, at = loop.carried
        index = _lane_indices(single, loop.index)
        loop.carried[:] = _better(builder, best, at, number, index)
    found = scalar_of(single, loop.results[1])
    none = builder.icmp_signed("==", found, ir.Constant(I32, _NO_INDEX))
    return builder.select(none, ir.Constant(I32, 0), found)


def _better(builder: Any, best: Any, at: Any, number: Any, index: Any) -> tuple[Any, Any]:
    """Per lane: a later number replaces the best one only if it is larger."""
    larger = builder.fcmp_ordered(">", number, best)
    return builder.select(larger, number, best), builder.select(larger, index, at)


def _first_largest(code: VectorCode, values: list[Any], indices: list[Any]) -> tuple[Any, Any]:
    """Over all chains and lanes: the largest value, and the smallest index that has it."""
    builder = code.builder
    most = join_lanes(code, join_all(code, values, larger), LANES, larger)
    with_it = [
        builder.select(builder.fcmp_ordered("==", value, most), index, code.splat_bits(_NO_INDEX))
        for value, index in zip(values, indices, strict=True)
    ]
    first = join_lanes(code, join_all(code, with_it, _smaller_index), LANES, _smaller_index)
    return scalar_of(code, most), scalar_of(code, first)


def _smaller_index(code: VectorCode, a: Any, b: Any) -> Any:
    return code.builder.select(code.builder.icmp_signed("<", a, b), a, b)


def _lane_indices(code: VectorCode, index: Any) -> Any:
    """`index` + 0, 1, 2 ... as 32-bit integers."""
    lanes = ir.Constant(code.vector_of(I32), list(range(code.lanes)))
    return code.builder.add(code.broadcast(code.builder.trunc(index, I32)), lanes)
