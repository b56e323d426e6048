"""SwiGLU's gate (Shazeer 2020) in one pass, for CPUs."""

import functools

import torch

from llmprof.engine.kernels.launch import dtype_name, launch, observable
from llmprof.engine.kernels.native import KernelBody, NativeKernel, compile_kernel
from llmprof.engine.kernels.vector_ir import STORED_TYPES, VectorCode, index_constant
from llmprof.engine.kernels.vector_math import for_each, silu

_GATE_UP, _OUT, _ROWS, _NUM_ARGUMENTS = range(4)


@observable(
    "silu_mul", fake=lambda gate_up: gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)
)
def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, computed in float32 and rounded once.

    Args:
        gate_up: [rows, 2 * inner], the gate before what it gates; contiguous, on the CPU; fp32, bf16 or fp16.

    Returns:
        [rows, inner], new.
    """
    rows, inner = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, inner)
    kernel = _kernel(dtype_name(gate_up), inner)
    launch(kernel, 3 * out.nbytes, gate_up.data_ptr(), out.data_ptr(), rows)
    return out


@functools.cache
def _kernel(dtype: str, inner: int) -> NativeKernel:
    build = functools.partial(_gate_rows, dtype=dtype, inner=inner)
    return compile_kernel(f"silu_mul_{dtype}_{inner}", _NUM_ARGUMENTS, build)


def _gate_rows(body: KernelBody, *, dtype: str, inner: int) -> None:
    builder, code, element = body.builder, body.code, STORED_TYPES[dtype]
    gate_up, out = body.pointer(_GATE_UP, element), body.pointer(_OUT, element)
    with code.loop(*body.share(body.integer(_ROWS)), 1) as rows:
        gate = builder.gep(gate_up, [builder.mul(rows.index, index_constant(2 * inner))])
        up = builder.gep(gate, [index_constant(inner)])
        target = builder.gep(out, [builder.mul(rows.index, index_constant(inner))])

        def gated(part: VectorCode, index: object) -> None:
            product = part.mul(
                silu(part, part.load(gate, index, dtype)), part.load(up, index, dtype)
            )
            part.store(product, target, index, dtype)

        for_each(code, inner, gated)
