"""Blocks of a GGUF file as codes, scales and minimums; numbers from ggml's struct definitions."""

import struct

import pytest
import torch

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.linear import Linear
from llmprof.engine.quantization.gguf_blocks import can_take_over, take_over
from llmprof.engine.quantization.packed_weight import PackedWeight

NIBBLES = bytes(low | (15 - low) << 4 for low in range(16))
CODES = [*range(16), *reversed(range(16))]


def packed(fmt: WeightFormat) -> PackedWeight:
    return PackedWeight.empty(fmt, torch.float32, 1, 64, torch.empty)


def weights_of(blocks: bytes, ggml_type: str, fmt: WeightFormat) -> torch.Tensor:
    """One row of two blocks."""
    out = packed(fmt)
    assert can_take_over(ggml_type, out)
    take_over(torch.frombuffer(bytearray(blocks), dtype=torch.uint8).view(1, -1), ggml_type, out)
    return Linear(out).rows(torch.tensor([0]))[0]


def row(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers)


def test_q8_0() -> None:
    codes = list(range(-16, 16))
    block = struct.pack("<e32b", 0.5, *codes)
    found = weights_of(
        block + struct.pack("<e", -2.0) + block[2:], "Q8_0", WeightFormat("int8", 32)
    )
    assert torch.equal(found, row(*(0.5 * c for c in codes), *(-2.0 * c for c in codes)))


def test_q4_1() -> None:
    blocks = struct.pack("<ee", 0.5, -3.0) + NIBBLES + struct.pack("<ee", 2.0, 1.0) + NIBBLES
    found = weights_of(blocks, "Q4_1", WeightFormat("int4", 32, symmetric=False))
    assert torch.equal(found, row(*(0.5 * c - 3 for c in CODES), *(2.0 * c + 1 for c in CODES)))


@pytest.mark.parametrize("symmetric", [True, False])
def test_q4_0_is_symmetric_and_fits_either_way(symmetric: bool) -> None:
    blocks = struct.pack("<e", 0.25) + NIBBLES + struct.pack("<e", -1.0) + NIBBLES
    found = weights_of(blocks, "Q4_0", WeightFormat("int4", 32, symmetric))
    assert torch.equal(found, row(*(0.25 * (c - 8) for c in CODES), *(8.0 - c for c in CODES)))


@pytest.mark.parametrize(
    ("ggml_type", "fmt"),
    [
        ("Q4_1", WeightFormat("int4", 32, symmetric=True)),  # a minimum has no place there
        ("Q4_1", WeightFormat("int4", 64, symmetric=False)),
        ("Q4_1", WeightFormat("int8", 32)),
        ("Q8_0", WeightFormat("int8")),
        ("Q8_0", WeightFormat("int4", 32)),
        ("Q6_K", WeightFormat("int8", 32)),
        ("F16", WeightFormat("int8", 32)),
    ],
)
def test_other_formats_are_not_taken_over(ggml_type: str, fmt: WeightFormat) -> None:
    assert not can_take_over(ggml_type, packed(fmt))
