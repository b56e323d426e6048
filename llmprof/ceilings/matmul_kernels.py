"""Matrix products per dtype: which library call does each, on random operands."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from torch.nn import functional

from llmprof.ceilings.pool import random_tensor
from llmprof.ceilings.timing import Call
from llmprof.engine.kernels.fp8_products import multiplies_fp8, scaled_product

Shape = tuple[int, int, int]
"""m, n, k: [m, k] times [k, n]."""

_FLOAT_DTYPES: Final = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
_FP8_CAPABILITY = (8, 9)
_TF32_CAPABILITY = (8, 0)


@dataclass(frozen=True, slots=True)
class MatmulKernel:
    """One library call; `prepare` makes operands for a shape and returns the product as a call."""

    name: str
    dtype: str
    prepare: Callable[[Shape], Call]


def matmul_dtypes(device: str) -> tuple[str, ...]:
    """Dtypes that torch multiplies on `device`, fast or not."""
    if device == "cpu":
        return ("fp32", "bf16", "fp16", "int8")
    capability = torch.cuda.get_device_capability(device)
    tf32 = ("tf32",) if capability >= _TF32_CAPABILITY else ()
    fp8 = ("fp8",) if capability >= _FP8_CAPABILITY else ()
    return ("fp32", *tf32, "bf16", "fp16", "int8", *fp8)


def matmul_kernels(dtype: str, device: str) -> tuple[MatmulKernel, ...]:
    """Rivals for `dtype`; all count 2 m n k operations."""
    if dtype == "int8":
        return (MatmulKernel("torch._int_mm", dtype, lambda shape: _int8(shape, device)),)
    if dtype == "fp8":
        return tuple(_fp8_kernels(device))
    torch_dtype = _FLOAT_DTYPES[dtype]
    return (
        MatmulKernel(
            "torch.nn.functional.linear", dtype, lambda shape: _linear(shape, device, torch_dtype)
        ),
        MatmulKernel("torch.mm", dtype, lambda shape: _mm(shape, device, torch_dtype)),
    )


@contextmanager
def float32_precision(dtype: str) -> Iterator[None]:
    """Multiply float32 in full for every dtype but tf32; torch's own setting comes back after."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _linear(shape: Shape, device: str, dtype: torch.dtype) -> Call:
    m, n, k = shape
    x, weight = random_tensor((m, k), device, dtype), random_tensor((n, k), device, dtype)
    return lambda: functional.linear(x, weight)


def _mm(shape: Shape, device: str, dtype: torch.dtype) -> Call:
    m, n, k = shape
    a, b = random_tensor((m, k), device, dtype), random_tensor((k, n), device, dtype)
    out = torch.empty(m, n, device=device, dtype=dtype)
    return lambda: torch.mm(a, b, out=out)


def _int8(shape: Shape, device: str) -> Call:
    m, n, k = shape
    a = random_tensor((m, k), device, torch.int8)
    b = random_tensor((n, k), device, torch.int8).t()
    return lambda: torch._int_mm(a, b)


def _fp8_kernels(device: str) -> Iterator[MatmulKernel]:
    """With one scale for all, and as the engine multiplies, with one per row, where torch has that."""
    yield MatmulKernel("torch._scaled_mm", "fp8", lambda shape: _fp8(shape, device))
    if multiplies_fp8(torch.device(device)):
        name = "torch._scaled_mm by rows"
        yield MatmulKernel(name, "fp8", lambda shape: _fp8_by_rows(shape, device))


def _fp8(shape: Shape, device: str) -> Call:
    """Fast accumulation, as in products of the engine."""
    m, n, k = shape
    a = random_tensor((m, k), device, torch.float8_e4m3fn)
    b = random_tensor((n, k), device, torch.float8_e4m3fn).t()
    one = torch.ones((), device=device)
    return lambda: torch._scaled_mm(
        a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def _fp8_by_rows(shape: Shape, device: str) -> Call:
    m, n, k = shape
    rows = random_tensor((m, k), device, torch.float8_e4m3fn)
    codes = random_tensor((n, k), device, torch.float8_e4m3fn)
    row_scales, scales = torch.ones(m, 1, device=device), torch.ones(n, device=device)
    return lambda: scaled_product(rows, row_scales, codes, scales, None)
