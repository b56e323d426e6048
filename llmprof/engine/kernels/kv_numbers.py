"""The dtypes that a KV cache stores, in torch and in LLVM IR."""

from typing import Any, Final

import torch

from llmprof.engine.kernels.vector_ir import I8, STORED_TYPES

KV_DTYPE_NAMES: Final = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int8: "int8",
    torch.float8_e4m3fn: "fp8",
}
KV_ELEMENTS: Final[dict[str, Any]] = {**STORED_TYPES, "fp8": I8}
"""Element type of a pointer into the store."""
