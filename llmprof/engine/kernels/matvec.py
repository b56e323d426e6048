"""y = x W^T + b for a few rows of x on a CPU, W in any format: the product of a decode step.

Such a product is as fast as memory delivers W. `torch.nn.functional.linear` reaches a third to a
half of that here, and torch's packed products lose it from 8 rows on; `tests/benchmarks/matvec.py`
prints the ratios.
"""

import functools
from typing import Final

import torch

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.kernels import matvec_tiles, matvec_vectors
from llmprof.engine.kernels.launch import dtype_name, launch, observable
from llmprof.engine.kernels.matvec_plan import NUM_ARGUMENTS, MatvecVariant
from llmprof.engine.kernels.native import NativeKernel, compile_kernel, cpu_features

MOST_ROWS: Final = 16
_FEW_OUTPUTS: Final = 16
_TILES_FROM_ROWS: Final = {"fp32": 99, "fp16": 99, "bf16": 2, "int8": 2, "int4": 2}
_HALF_PRECISION: Final = ("f16c", "neon")
"""x86 and Arm: without either, LLVM would call library functions to read fp16."""


@functools.cache
def matvec_supported() -> bool:
    """Whether this CPU has what every format needs."""
    return any(feature in cpu_features() for feature in _HALF_PRECISION)


def _fake(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor | None,
    minimums: torch.Tensor | None,
    bias: torch.Tensor | None,
    number: str,
    group_size: int,
) -> torch.Tensor:
    return x.new_empty(x.shape[0], codes.shape[0])


@observable("matvec", fake=_fake)
def matvec(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor | None,
    minimums: torch.Tensor | None,
    bias: torch.Tensor | None,
    number: str,
    group_size: int,
) -> torch.Tensor:
    """Multiply 1 to 16 rows by a weight, in float32, rounded once to the dtype of x.

    Args:
        x: [rows, in_features] on the CPU; fp32, bf16 or fp16.
        codes: [out_features, in_features], or half as many bytes for int4 (see `PackedWeight`).
        scales: None for floats.
        minimums: of an asymmetric format.
        bias: [out_features], of the dtype of x.
        number: fp32, bf16, fp16, int8 or int4: what `codes` holds.
        group_size: of weights that share a scale; 0 where a row has one, or none.

    Returns:
        [rows, out_features].
    """
    rows, in_features = x.shape
    out_features = codes.shape[0]
    symmetric = minimums is None
    kernel = _kernel(
        number,
        group_size,
        symmetric,
        in_features,
        rows,
        dtype_name(x),
        bias is not None,
        out_features < _FEW_OUTPUTS,
    )
    y = x.new_empty((rows, out_features))
    x = x.contiguous()
    launch(
        kernel,
        codes.nbytes,
        codes.data_ptr(),
        0 if scales is None else scales.data_ptr(),
        0 if minimums is None else minimums.data_ptr(),
        x.data_ptr(),
        y.data_ptr(),
        0 if bias is None else bias.data_ptr(),
        out_features,
    )
    return y


@functools.cache
def _kernel(
    number: str,
    group_size: int,
    symmetric: bool,
    in_features: int,
    rows: int,
    activations: str,
    has_bias: bool,
    few_outputs: bool,
) -> NativeKernel:
    """Compiled when it is first asked for."""
    fmt = WeightFormat(number, group_size or None, symmetric)
    variant = MatvecVariant(fmt, in_features, rows, activations, has_bias, few_outputs)
    name = f"matvec_{fmt.name}_{rows}x{in_features}"
    if rows >= _TILES_FROM_ROWS[number] and matvec_tiles.tiles_fit(variant):
        return compile_kernel(
            name,
            NUM_ARGUMENTS,
            lambda body: matvec_tiles.multiply(body, variant),
            prepare=lambda body: matvec_tiles.pair_activations(body, variant),
            scratch_bytes=matvec_tiles.scratch_bytes(variant),
        )
    return compile_kernel(
        name,
        NUM_ARGUMENTS,
        lambda body: matvec_vectors.multiply(body, variant),
        prepare=lambda body: matvec_vectors.widen_activations(body, variant),
        scratch_bytes=matvec_vectors.scratch_bytes(variant),
    )
