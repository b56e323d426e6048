"""Rows of activations to float8_e4m3fn with a scale each, on a GPU: what fp8 products multiply.

Reads x twice, the second time from a cache, and writes half its bytes; torch takes five passes.
"""

import torch
import triton
import triton.language as tl

from llmprof.engine.kernels.launch import observable
from llmprof.engine.kernels.triton.gpu import converts_fp8, on_device_of
from llmprof.engine.kernels.triton.kv_append import fp8_codes

_MOST_AT_ONCE = 4096


@triton.jit  # type: ignore[untyped-decorator]
def _quantize(  # type: ignore[no-untyped-def]
    x, codes, scales, in_features, native: tl.constexpr, columns: tl.constexpr
):
    """A row: its largest number becomes 448, the largest of the format."""
    row = tl.program_id(0).to(tl.int64)
    source, target = x + row * in_features, codes + row * in_features
    largest = tl.zeros((columns,), dtype=tl.float32)
    for start in range(0, in_features, columns):
        at = start + tl.arange(0, columns)
        numbers = tl.load(source + at, at < in_features, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.abs(numbers))
    size = tl.max(largest, axis=0)
    tl.store(scales + row, tl.div_rn(size, 448.0))
    inverse = tl.where(size > 0, tl.div_rn(448.0, size), 0.0)
    for start in range(0, in_features, columns):
        at = start + tl.arange(0, columns)
        numbers = tl.load(source + at, at < in_features, other=0.0).to(tl.float32) * inverse
        if native:
            rounded = numbers.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
        else:
            rounded = fp8_codes(numbers)
        tl.store(target + at, rounded, at < in_features)


def _fake(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (
        x.new_empty(x.shape, dtype=torch.float8_e4m3fn),
        x.new_empty((x.shape[0], 1), dtype=torch.float32),
    )


@observable("triton_quantize_rows", fake=_fake)
def triton_quantize_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Round x [rows, in_features], contiguous, to codes of its shape and scales [rows, 1] in float32.

    A row is its codes times its scale; one of zeros has scale 0.
    """
    rows, in_features = x.shape
    codes, scales = _fake(x)
    with on_device_of(x):
        _quantize[(rows,)](
            x,
            codes.view(torch.uint8),
            scales,
            in_features,
            native=converts_fp8(x.device),
            columns=min(triton.next_power_of_2(in_features), _MOST_AT_ONCE),
            num_warps=8,
        )
    return codes, scales
