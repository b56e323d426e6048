"""y = x W^T + b for a few rows of x on a CPU, W in any format: the product of a decode step.

Such a product is as fast as memory delivers W. `torch.nn.functional.linear` reaches a third to a
half of that here, and torch's packed products lose it from 8 rows on; `tests/benchmarks/matvec.py`
prints the rates of each loop nest.
"""

import functools
from types import ModuleType
from typing import Final

import torch

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.kernels import matvec_dots, matvec_tiles, matvec_vectors
from llmprof.engine.kernels.launch import dtype_name, launch, observable
from llmprof.engine.kernels.matvec_plan import NUM_ARGUMENTS, MatvecVariant
from llmprof.engine.kernels.native import NativeKernel, compile_kernel, cpu_features

_MOST_ROWS_OF_VECTORS: Final = 16
_FEW_OUTPUTS: Final = 16
"""Rows of W below which no nest can work on whole blocks."""
_TILES_FROM_ROWS: Final = {"bf16": 1, "fp8": 4, "int8": 2, "int8 in groups": 4, "int4": 3}
"""Rows of x from which tiles (AMX) beat vectors. One Sapphire Rapids core, weights in its cache, 10^9
weights per second with vectors / tiles at 1, 2, 4, 8 and 16 rows: bf16 25/31, 18/29, 12/29, 7/29,
4/22; int8 26/19, 21/18, 13/17, 7/15, 4/13; int8 in groups of 32 20/13, 16/12, 12/12, 7/12, 4/11;
int4 in groups of 32 22/16, 17/16, 13/16, 7/14, 4/11. Two cores, from memory, at 1, 2, 3, 4 and 8 rows:
fp8 15/14, 13/12, 13/12, 12/12, 8/10; int8 15/17, 14/17, 13/16, 13/16, 8/15; bf16 differs by less than
10 % either way up to 3 rows, by the width of the matrix."""
_HALF_PRECISION: Final = ("f16c", "neon")
"""x86 and Arm: without either, LLVM would call library functions to read fp16."""


@functools.cache
def matvec_supported() -> bool:
    """Whether this CPU has what every format needs."""
    return any(feature in cpu_features() for feature in _HALF_PRECISION)


@functools.cache
def most_rows(weights: WeightFormat, shape: tuple[int, int], activations: str) -> int:
    """Of x, that one call takes: as many as the kernel for them handles in one pass over W."""
    if not matvec_supported():
        return 0
    out_features, in_features = shape
    few_outputs = out_features < _FEW_OUTPUTS
    for rows in (matvec_tiles.MOST_ROWS, _MOST_ROWS_OF_VECTORS):
        variant = MatvecVariant(
            weights, in_features, rows, activations, has_bias=False, few_outputs=few_outputs
        )
        if _prefers_tiles(variant):
            return rows
    return _MOST_ROWS_OF_VECTORS


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
    """Multiply a few rows by a weight, in float32, rounded once to the dtype of x.

    Args:
        x: [rows, in_features] on the CPU, at most `most_rows`; fp32, bf16 or fp16.
        codes: [out_features, in_features], or half as many bytes for int4 (see `PackedWeight`).
        scales: None for floats.
        minimums: of an asymmetric format.
        bias: [out_features], of the dtype of x.
        number: fp32, bf16, fp16, fp8, int8 or int4: what `codes` holds.
        group_size: of weights that share a scale; 0 where a row has one, or none.

    Returns:
        [rows, out_features].
    """
    rows, in_features = x.shape
    kernel = _kernel(
        number,
        group_size,
        minimums is None,
        in_features,
        rows,
        dtype_name(x),
        bias is not None,
        codes.shape[0] < _FEW_OUTPUTS,
    )
    return run_matvec(kernel, x, codes, scales, minimums, bias)


def run_matvec(
    kernel: NativeKernel,
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor | None,
    minimums: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """`matvec` by a kernel of `compile_matvec` for such tensors."""
    out_features = codes.shape[0]
    y = x.new_empty((x.shape[0], out_features))
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
    return compile_matvec(variant, _nest(variant))


def compile_matvec(variant: MatvecVariant, nest: ModuleType) -> NativeKernel:
    """A product by one of `fitting_nests`."""
    return compile_kernel(
        f"matvec_{variant.weights.name}_{variant.rows}x{variant.in_features}",
        NUM_ARGUMENTS,
        lambda body: nest.multiply(body, variant),
        prepare=lambda body: nest.arrange_activations(body, variant),
        scratch_bytes=nest.scratch_bytes(variant),
    )


def fitting_nests(variant: MatvecVariant) -> tuple[ModuleType, ...]:
    """Loop nests that can do a product, the one that `matvec` takes first."""
    fits = {
        _nest(variant): True,
        matvec_dots: matvec_dots.dots_fit(variant),
        matvec_tiles: matvec_tiles.tiles_fit(variant),
        matvec_vectors: True,
    }
    return tuple(nest for nest, fit in fits.items() if fit)


def _nest(variant: MatvecVariant) -> ModuleType:
    """Who multiplies: integers for few rows of packed weights, AMX for many rows, else floats."""
    if matvec_dots.dots_fit(variant):
        return matvec_dots
    return matvec_tiles if _prefers_tiles(variant) else matvec_vectors


def _prefers_tiles(variant: MatvecVariant) -> bool:
    number = variant.weights.number
    in_groups = number == "int8" and variant.weights.group_size is not None
    enough = _TILES_FROM_ROWS.get("int8 in groups" if in_groups else number)
    return enough is not None and variant.rows >= enough and matvec_tiles.tiles_fit(variant)
