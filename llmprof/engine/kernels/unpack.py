"""Packed weights back to floats on a CPU: tiles for a product of many rows, or rows of a table."""

import functools

import torch
from llvmlite import ir

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.kernels.launch import dtype_name, launch, observable
from llmprof.engine.kernels.native import KernelBody, NativeKernel, compile_kernel
from llmprof.engine.kernels.vector_ir import (
    F32,
    I64,
    LANES,
    STORED_TYPES,
    VectorCode,
    index_constant,
)
from llmprof.engine.kernels.weight_decoders import ROW_FACTORS, make_decoder

_CODES, _SCALES, _MINIMUMS, _IDS, _FIRST, _COUNT, _OUT, _NUM_ARGUMENTS = range(8)


@observable("unpack_rows_", mutates=("out",))
def unpack_rows_(
    out: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    minimums: torch.Tensor | None,
    ids: torch.Tensor | None,
    first: int,
    number: str,
    group_size: int,
) -> None:
    """Write rows of a packed matrix into `out` [rows, in_features], rounded to its dtype.

    Args:
        out: contiguous, on the CPU; fp32, bf16 or fp16.
        codes: as in `PackedWeight`.
        scales: as in `PackedWeight`.
        minimums: of an asymmetric format.
        ids: [rows], int64, each below the matrix's rows: which ones; None for adjacent ones.
        first: of the adjacent ones.
        number: fp8, int8 or int4.
        group_size: 0 where a row has one scale.
    """
    rows, in_features = out.shape
    kernel = _kernel(
        number, group_size, minimums is None, in_features, dtype_name(out), ids is not None
    )
    launch(
        kernel,
        out.nbytes,
        codes.data_ptr(),
        scales.data_ptr(),
        0 if minimums is None else minimums.data_ptr(),
        0 if ids is None else ids.data_ptr(),
        first,
        rows,
        out.data_ptr(),
    )


@functools.cache
def _kernel(
    number: str, group_size: int, symmetric: bool, in_features: int, dtype: str, by_id: bool
) -> NativeKernel:
    fmt = WeightFormat(number, group_size or None, symmetric)
    return compile_kernel(
        f"unpack_{fmt.name}_{in_features}",
        _NUM_ARGUMENTS,
        lambda body: _unpack(body, fmt, in_features, dtype, by_id=by_id),
    )


def _unpack(
    body: KernelBody, fmt: WeightFormat, in_features: int, dtype: str, *, by_id: bool
) -> None:
    """One thread's rows."""
    builder, code = body.builder, body.code
    decoder = make_decoder(body, fmt, in_features, 1, (_CODES, _SCALES, _MINIMUMS))
    out, ids = body.pointer(_OUT, STORED_TYPES[dtype]), body.pointer(_IDS, I64)
    first, width = body.integer(_FIRST), index_constant(in_features)
    with code.loop(*body.share(body.integer(_COUNT)), 1) as row:
        if by_id:
            source = builder.load(builder.gep(ids, [row.index]))
        else:
            source = builder.add(first, row.index)
        decoder.begin(source)
        scale = None if fmt.group_size else _row_scale(body, fmt.number, source)
        target = builder.gep(out, [builder.mul(row.index, width)])
        step = decoder.smallest_step
        whole = in_features // step * step
        for lanes, begin, end, by in ((LANES, 0, whole, step), (1, whole, in_features, 1)):
            if begin == end:
                continue
            part = VectorCode(builder, lanes)
            with code.loop(index_constant(begin), index_constant(end), by) as loop:
                for number, vector in enumerate(decoder.vectors(0, loop.index, by, part)):
                    weights = part.mul(vector, part.broadcast(scale)) if scale else vector
                    at = builder.add(loop.index, index_constant(number * lanes))
                    part.store(weights, target, at, dtype)


def _row_scale(body: KernelBody, number: str, row: ir.Value) -> ir.Value:
    stored = body.builder.load(body.builder.gep(body.pointer(_SCALES, F32), [row]))
    return body.builder.fmul(stored, ir.Constant(F32, ROW_FACTORS[number]))
