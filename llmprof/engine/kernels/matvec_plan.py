"""What the loop nests of y = x W^T + b have in common: arguments, prefetching, the way out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from llvmlite import ir

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.kernels.native import KernelBody
from llmprof.engine.kernels.vector_ir import (
    F32,
    I32,
    STORED_TYPES,
    VectorCode,
    index_constant,
)
from llmprof.engine.kernels.weight_decoders import LINE_BYTES, ROW_FACTORS, BlockDecoder

CODES, SCALES, MINIMUMS, X, Y, BIAS, OUT_FEATURES, NUM_ARGUMENTS = range(8)
"""Slots of the kernel's arguments: addresses, and the number of W's rows."""

PREFETCH_BYTES: Final = 12288
"""How far ahead of the arithmetic a block's rows are fetched, all rows together. From 4.5 KiB to here
one core of Sapphire Rapids gained up to 8 %, from here to 32 KiB nothing."""


@dataclass(frozen=True, slots=True)
class MatvecVariant:
    """Everything that the code of a product depends on."""

    weights: WeightFormat
    in_features: int
    rows: int
    """Of x."""
    activations: str
    """fp32, bf16 or fp16: of x, y and the bias."""
    has_bias: bool
    few_outputs: bool
    """There are fewer rows of W than the nest usually works on at once."""


def blocks_of_rows(body: KernelBody, block: int) -> tuple[tuple[Any, Any], Any]:
    """This thread's share [begin, end) of W in blocks, and the first row of the last block."""
    builder, out_features = body.builder, body.integer(OUT_FEATURES)
    rounded_up = builder.add(out_features, index_constant(block - 1))
    blocks = builder.udiv(rounded_up, index_constant(block))
    return body.share(blocks), builder.sub(out_features, index_constant(block))


def first_row(body: KernelBody, number: Any, last: Any, block: int) -> Any:
    """Of a block: the last one may do rows of the one before it again, to the same result."""
    wanted = body.builder.mul(number, index_constant(block))
    return body.builder.select(body.builder.icmp_signed("<", wanted, last), wanted, last)


def fetch_ahead(
    body: KernelBody, decoder: BlockDecoder, in_features: int, block: int, index: Any, count: int
) -> None:
    """Prefetch what comes a while after columns [index, index + count) of a block's rows.

    Rows of a block are adjacent, so a row goes on, past its end, in the next block.
    """
    builder, row_bytes = body.builder, decoder.row_bytes
    distance = -(-PREFETCH_BYTES // block // LINE_BYTES) * LINE_BYTES
    if distance >= row_bytes:
        ahead = index_constant(-(-distance // row_bytes) * block * row_bytes)
    else:
        turn = in_features * (row_bytes - distance) // row_bytes
        within = builder.icmp_signed("<", index, index_constant(turn))
        beyond = index_constant(distance + (block - 1) * row_bytes)
        ahead = builder.select(within, index_constant(distance), beyond)
    for row in range(block):
        decoder.prefetch(row, index, count, ahead)


def write_outputs(
    body: KernelBody,
    variant: MatvecVariant,
    rows: Sequence[int],
    first: Any,
    block: int,
    totals: Any,
) -> None:
    """Scale of the row of W, bias, rounding, and out to y [rows, out_features].

    Lane j * block + i of `totals` is row first + i of W times x's row number `rows[j]`.
    """
    builder = body.builder
    code = VectorCode(builder, totals.type.count)
    element = STORED_TYPES[variant.activations]

    def of_each_row(numbers: Any, dtype: str) -> Any:
        loaded = VectorCode(builder, block).load(numbers, first, dtype)
        lanes = ir.Constant(code.vector_of(I32), [lane % block for lane in range(code.lanes)])
        return builder.shuffle_vector(loaded, loaded, lanes)

    if variant.weights.packed and variant.weights.group_size is None:
        scales = of_each_row(body.pointer(SCALES, F32), "fp32")
        totals = code.mul(totals, code.mul(scales, code.splat(ROW_FACTORS[variant.weights.number])))
    if variant.has_bias:
        totals = code.add(totals, of_each_row(body.pointer(BIAS, element), variant.activations))
    narrow = code.narrow(totals, variant.activations)
    y, out_features = body.pointer(Y, element), body.integer(OUT_FEATURES)
    part = VectorCode(builder, block)
    for j, row in enumerate(rows):
        lanes = ir.Constant(part.vector_of(I32), [j * block + i for i in range(block)])
        at = builder.add(builder.mul(out_features, index_constant(row)), first)
        part.store_raw(builder.shuffle_vector(narrow, narrow, lanes), y, at)
