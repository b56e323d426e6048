"""Sizes of weight formats, worked out by hand."""

import pytest

from llmprof.costs.weight_formats import WeightFormat
from llmprof.errors import CapabilityError


@pytest.mark.parametrize(
    ("fmt", "name", "bits"),
    [
        (WeightFormat("fp32"), "fp32", 32),
        (WeightFormat("bf16"), "bf16", 16),
        (WeightFormat("int8"), "int8", 8),
        (WeightFormat("int8", 32), "int8_g32", 8.5),  # GGUF's Q8_0: 34 bytes for 32 weights
        (WeightFormat("int4", 32), "int4_g32_sym", 4.5),  # Q4_0: 18 bytes for 32
        (WeightFormat("int4", 32, symmetric=False), "int4_g32_asym", 5.0),  # Q4_1: 20 bytes
        (WeightFormat("int4", 128), "int4_g128_sym", 4.125),
        (WeightFormat("int4", 64, symmetric=False), "int4_g64_asym", 4.5),
    ],
)
def test_names_and_bits_per_weight(fmt: WeightFormat, name: str, bits: float) -> None:
    assert fmt.name == name
    assert fmt.bits_per_weight == bits


@pytest.mark.parametrize(
    ("fmt", "stored_bytes"),
    [
        (WeightFormat("fp16"), 10 * 192 * 2),
        (WeightFormat("int8"), 10 * (192 + 4)),
        (WeightFormat("int8", 64), 10 * (192 + 3 * 2)),
        (WeightFormat("int4", 32, symmetric=False), 10 * (96 + 6 * 4)),
        (WeightFormat("int4", 128), 10 * (96 + 2 * 2)),  # the second group of a row has 64 weights
    ],
)
def test_stored_bytes_hold_scales_and_minimums(fmt: WeightFormat, stored_bytes: int) -> None:
    assert fmt.stored_bytes(10, 192) == stored_bytes


def test_codes_are_packed_32_at_a_time() -> None:
    WeightFormat("int4", 128).check_fits("q_proj", 96)
    WeightFormat("int8").check_fits("q_proj", 7)
    with pytest.raises(CapabilityError, match=r"rows of 48 weights \(q_proj\).*int4_g32_sym"):
        WeightFormat("int4", 32).check_fits("q_proj", 48)
