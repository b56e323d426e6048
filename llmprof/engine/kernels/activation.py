"""The gate of SwiGLU and GeGLU (Shazeer 2020) in one pass, for CPUs."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from llmprof.engine.kernels.launch import dtype_name, launch, observable
from llmprof.engine.kernels.native import KernelBody, NativeKernel, compile_kernel
from llmprof.engine.kernels.vector_ir import STORED_TYPES, VectorCode, index_constant
from llmprof.engine.kernels.vector_math import for_each, gelu_tanh, silu

_GATE_UP, _OUT, _ROWS, _NUM_ARGUMENTS = range(4)
_GATES: Final[Mapping[str, Callable[[VectorCode, Any], Any]]] = {
    "silu": silu,
    "gelu_tanh": gelu_tanh,
}


def _half(gate_up: torch.Tensor) -> torch.Tensor:
    """Room for the product."""
    return gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)


@observable("silu_mul", fake=_half)
def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, computed in float32 and rounded once.

    Args:
        gate_up: [rows, 2 * inner], the gate before what it gates; contiguous, on the CPU; fp32, bf16 or fp16.

    Returns:
        [rows, inner], new.
    """
    return _gated(gate_up, "silu")


@observable("gelu_tanh_mul", fake=_half)
def gelu_tanh_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """gelu(gate) * up by gelu's approximation with tanh; as `silu_mul`."""
    return _gated(gate_up, "gelu_tanh")


def _gated(gate_up: torch.Tensor, gate: str) -> torch.Tensor:
    out = _half(gate_up)
    rows, inner = out.shape
    kernel = _kernel(dtype_name(gate_up), inner, gate)
    launch(kernel, 3 * out.nbytes, gate_up.data_ptr(), out.data_ptr(), rows)
    return out


@functools.cache
def _kernel(dtype: str, inner: int, gate: str) -> NativeKernel:
    build = functools.partial(_gate_rows, dtype=dtype, inner=inner, gate=gate)
    return compile_kernel(f"{gate}_mul_{dtype}_{inner}", _NUM_ARGUMENTS, build)


def _gate_rows(body: KernelBody, *, dtype: str, inner: int, gate: str) -> None:
    activation = _GATES[gate]
    builder, code, element = body.builder, body.code, STORED_TYPES[dtype]
    gate_up, out = body.pointer(_GATE_UP, element), body.pointer(_OUT, element)
    with code.loop(*body.share(body.integer(_ROWS)), 1) as rows:
        gates = builder.gep(gate_up, [builder.mul(rows.index, index_constant(2 * inner))])
        up = builder.gep(gates, [index_constant(inner)])
        target = builder.gep(out, [builder.mul(rows.index, index_constant(inner))])

        def gated(part: VectorCode, index: object) -> None:
            product = part.mul(
                activation(part, part.load(gates, index, dtype)), part.load(up, index, dtype)
            )
            part.store(product, target, index, dtype)

        for_each(code, inner, gated)
