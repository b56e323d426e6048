"""Keys and values of new tokens into the blocks of a KV cache, quantized on the way; for CPUs."""

import functools
from dataclasses import dataclass
from typing import Any, Final

import torch
from llvmlite import ir

from llmprof.engine.kernels.fp8 import store_fp8
from llmprof.engine.kernels.kv_numbers import KV_DTYPE_NAMES, KV_ELEMENTS
from llmprof.engine.kernels.launch import dtype_name, launch, observable
from llmprof.engine.kernels.native import KernelBody, NativeKernel, compile_kernel
from llmprof.engine.kernels.vector_ir import (
    F32,
    I8,
    I32,
    I64,
    STORED_TYPES,
    VectorCode,
    index_constant,
)
from llmprof.engine.kernels.vector_math import for_each, largest, scalar_of, unary

(
    _NEW,
    _STORE,
    _SCALES,
    _SLOTS,
    _ROWS,
    _ROW_STRIDE,
    _BLOCKS,
    _BLOCK_TOKENS,
    _NUM_ARGUMENTS,
) = range(9)

_INT8_LARGEST: Final = 127.0


@dataclass(frozen=True, slots=True)
class _Variant:
    dtype: str
    kv_dtype: str
    kv_heads: int
    head_dim: int


@observable("kv_append_", mutates=("store", "scales"))
def kv_append_(
    keys_values: torch.Tensor,
    store: torch.Tensor,
    scales: torch.Tensor | None,
    slots: torch.Tensor,
) -> None:
    """Put the keys and values of new tokens where the cache keeps them.

    Args:
        keys_values: [rows, 2, kv_heads, head_dim], rows at any stride and dense within, on the CPU; fp32,
            bf16 or fp16.
        store: [2, blocks, kv_heads, block_tokens, head_dim], contiguous; of the same dtype, or int8
            or float8_e4m3fn.
        scales: for int8, float32 [2, blocks, kv_heads, block_tokens], contiguous: each vector of
            head_dim numbers becomes integers of -127 ... 127 times its own scale.
        slots: int32 [rows], block * block_tokens + offset in the block.
    """
    rows, _, kv_heads, head_dim = keys_values.shape
    variant = _Variant(dtype_name(keys_values), KV_DTYPE_NAMES[store.dtype], kv_heads, head_dim)
    launch(
        _kernel(variant),
        2 * rows * 2 * kv_heads * head_dim * keys_values.itemsize,
        keys_values.data_ptr(),
        store.data_ptr(),
        0 if scales is None else scales.data_ptr(),
        slots.data_ptr(),
        rows,
        keys_values.stride(0),
        store.shape[1],
        store.shape[3],
    )


@functools.cache
def _kernel(variant: _Variant) -> NativeKernel:
    build = functools.partial(_append_rows, variant=variant)
    return compile_kernel(f"kv_append_{variant.kv_dtype}", _NUM_ARGUMENTS, build)


def _append_rows(body: KernelBody, *, variant: _Variant) -> None:
    """This thread's rows; a vector is K or V of one token and head."""
    builder, code = body.builder, body.code
    heads, size = index_constant(variant.kv_heads), index_constant(variant.head_dim)
    new = body.pointer(_NEW, STORED_TYPES[variant.dtype])
    store = body.pointer(_STORE, KV_ELEMENTS[variant.kv_dtype])
    scales, slots = body.pointer(_SCALES, F32), body.pointer(_SLOTS, I32)
    blocks, block_tokens, row_stride = map(body.integer, (_BLOCKS, _BLOCK_TOKENS, _ROW_STRIDE))
    with code.loop(*body.share(body.integer(_ROWS)), 1) as rows:
        row = builder.gep(new, [builder.mul(rows.index, row_stride)])
        slot = builder.sext(builder.load(builder.gep(slots, [rows.index])), I64)
        block, offset = builder.sdiv(slot, block_tokens), builder.srem(slot, block_tokens)
        for part in (0, 1):
            plane = builder.mul(index_constant(part), blocks)
            first_head = builder.mul(builder.add(plane, block), heads)
            with code.loop(index_constant(0), heads, 1) as each:
                head = builder.add(first_head, each.index)
                token = builder.add(builder.mul(head, block_tokens), offset)
                nth = builder.add(index_constant(part * variant.kv_heads), each.index)
                source = builder.gep(row, [builder.mul(nth, size)])
                target = builder.gep(store, [builder.mul(token, size)])
                _put(code, source, target, builder.gep(scales, [token]), variant)


def _put(code: VectorCode, source: Any, target: Any, scale: Any, variant: _Variant) -> None:
    match variant.kv_dtype:
        case "int8":
            _quantize(code, source, target, scale, variant)
        case "fp8":

            def put_fp8(part: VectorCode, index: Any) -> None:
                store_fp8(part, part.load(source, index, variant.dtype), target, index)

            for_each(code, variant.head_dim, put_fp8)
        case same:

            def copy(part: VectorCode, index: Any) -> None:
                part.store(part.load(source, index, variant.dtype), target, index, same)

            for_each(code, variant.head_dim, copy)


def _quantize(code: VectorCode, source: Any, target: Any, scale: Any, variant: _Variant) -> None:
    """Symmetric: the largest magnitude becomes 127."""
    builder = code.builder

    def magnitude(part: VectorCode, index: Any) -> Any:
        return unary(part, "llvm.fabs", part.load(source, index, variant.dtype))

    most = scalar_of(code, largest(code, variant.head_dim, magnitude, least=0.0))
    step = builder.fdiv(most, ir.Constant(F32, _INT8_LARGEST))
    builder.store(step, scale)
    is_zero = builder.fcmp_ordered("==", step, ir.Constant(F32, 0.0))
    inverse = builder.fdiv(ir.Constant(F32, 1.0), step)
    inverse = builder.select(is_zero, ir.Constant(F32, 0.0), inverse)

    def rounded(part: VectorCode, index: Any) -> None:
        number = part.mul(part.load(source, index, variant.dtype), part.broadcast(inverse))
        whole = builder.fptosi(unary(part, "llvm.rint", number), part.vector_of(I32))
        part.store_raw(builder.trunc(whole, part.vector_of(I8)), target, index)

    for_each(code, variant.head_dim, rounded)
