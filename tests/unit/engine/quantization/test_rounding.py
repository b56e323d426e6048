"""Codes that are close to their weights."""

import numpy as np
import pytest
import torch

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.linear import Linear
from llmprof.engine.quantization import rounding
from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.engine.quantization.rounding import quantize_into
from tests.packed_weights import e4m3

INT4 = [WeightFormat("int4", size, symmetric) for size in (32, 128) for symmetric in (True, False)]


def quantized(
    weights: torch.Tensor, fmt: WeightFormat, *, search: bool = True
) -> tuple[PackedWeight, torch.Tensor]:
    """Codes, and the floats that they stand for."""
    rows, columns = weights.shape
    packed = PackedWeight.empty(fmt, torch.float32, rows, columns, torch.empty)
    quantize_into(weights, packed, search=search)
    return packed, Linear(packed).rows(torch.arange(len(weights)))


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5)) * 0.05


def error(weights: torch.Tensor, found: torch.Tensor) -> float:
    return float((found - weights).square().mean().sqrt())


@pytest.mark.parametrize("group_size", [None, 32, 128])
def test_int8_is_within_half_a_step_of_the_largest_weight(group_size: int | None) -> None:
    weights = normal(40, 192)
    packed, found = quantized(weights, WeightFormat("int8", group_size), search=False)
    groups = torch.split(weights, group_size or 192, dim=1)
    steps = torch.stack([group.abs().amax(1) / 127 for group in groups], dim=1)
    torch.testing.assert_close(packed.scales.float().view(40, -1), steps, rtol=2**-10, atol=0)
    spread = steps.repeat_interleave(group_size or 192, dim=1)[:, :192]
    # half a step, and what a scale in fp16 moves the largest weight by
    assert ((found - weights).abs() <= spread * (0.5 + 127 * 2**-11)).all()


def test_fp8_is_within_a_sixteenth_of_each_weight() -> None:
    """Three bits of mantissa: half a step is at most 1/16; below 2^-6 of the scale, 2^-10 of it."""
    weights = normal(40, 192)
    weights[3] = 0
    packed, found = quantized(weights, WeightFormat("fp8"))
    scales = weights.abs().amax(1) / 448
    torch.testing.assert_close(packed.scales, scales, rtol=1e-6, atol=0)
    assert packed.codes.dtype is torch.float8_e4m3fn
    assert packed.codes.float().abs().amax(1).tolist() == [
        448.0 if row != 3 else 0.0 for row in range(40)
    ]
    allowed = torch.maximum(weights.abs() / 16, scales[:, None] * 2**-10)
    assert ((found - weights).abs() <= allowed * (1 + 1e-5)).all()


def test_fp8_numbers_come_back_exactly_and_in_every_row() -> None:
    drawn = np.random.default_rng(1).integers(0x7F, size=(6, 256))
    numbers = e4m3(drawn | np.random.default_rng(2).integers(2, size=(6, 256)) << 7)
    numbers[:, 7] = 448
    weights = torch.from_numpy(numbers * 2.0 ** -np.arange(6)[:, None]).float()
    assert torch.equal(quantized(weights, WeightFormat("fp8"))[1], weights)


@pytest.mark.parametrize("fmt", INT4, ids=lambda fmt: fmt.name)
def test_weights_on_the_grid_come_back_exactly(fmt: WeightFormat) -> None:
    """Each group holds the ends of its range, so even plain rounding finds its scale."""
    drawn = np.random.default_rng(1).integers(16, size=(6, 256)).astype(np.float32)
    drawn[:, ::32], drawn[:, 1::32] = 0, 15
    minimum = -8 if fmt.symmetric else -3
    weights = torch.from_numpy((drawn + minimum) * 0.25)
    for search in (True, False):
        assert torch.equal(quantized(weights, fmt, search=search)[1], weights)


@pytest.mark.parametrize("fmt", INT4, ids=lambda fmt: fmt.name)
def test_the_search_beats_plain_rounding(fmt: WeightFormat) -> None:
    weights = normal(64, 512)
    searched, plain = (
        error(weights, quantized(weights, fmt, search=search)[1]) for search in (True, False)
    )
    assert searched < 0.97 * plain


def test_a_row_in_int8_may_cut_off_its_outlier() -> None:
    weights = normal(20, 576)
    weights[:, 7] = 0.3  # six times the spread of the others: 24 times of it would not be cut off
    fmt = WeightFormat("int8")
    searched, plain = (
        error(weights, quantized(weights, fmt, search=search)[1]) for search in (True, False)
    )
    assert searched <= plain


def test_searching_is_worst_group_by_group_no_worse() -> None:
    weights = normal(30, 96)
    fmt = WeightFormat("int4", 32, symmetric=False)
    found = [quantized(weights, fmt, search=search)[1] for search in (True, False)]
    searched, plain = ((one - weights).square().view(30, 3, 32).sum(-1) for one in found)
    assert (searched <= plain * (1 + 1e-5)).all()


def test_more_groups_lose_less_and_minimums_lose_less_than_none() -> None:
    weights = normal(64, 512) + 0.02
    errors = {fmt.name: error(weights, quantized(weights, fmt)[1]) for fmt in INT4}
    assert errors["int4_g32_asym"] < errors["int4_g128_asym"] < errors["int4_g128_sym"]
    assert errors["int4_g32_asym"] < errors["int4_g32_sym"]


@pytest.mark.parametrize("fmt", [WeightFormat("int8"), WeightFormat("int8", 32), *INT4])
def test_rows_of_zeros_and_of_one_number(fmt: WeightFormat) -> None:
    weights = torch.zeros(3, 128)
    weights[1] = 0.5
    weights[2] = -0.25
    found = quantized(weights, fmt)[1]
    torch.testing.assert_close(found, weights, rtol=2**-10, atol=0)


def test_a_last_group_that_is_smaller() -> None:
    weights = normal(5, 160)
    packed, found = quantized(weights, WeightFormat("int4", 128, symmetric=False))
    assert packed.scales.shape == (5, 2)
    alone = quantized(weights[:, 128:], WeightFormat("int4", 32, symmetric=False))[1]
    assert torch.equal(found[:, 128:], alone)


def test_pieces_of_a_matrix_are_rounded_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, fmt = normal(23, 64), WeightFormat("int4", 32, symmetric=False)
    whole, _ = quantized(weights, fmt)
    monkeypatch.setattr(rounding, "_CHUNK_NUMBERS", 128)
    pieces, _ = quantized(weights, fmt)
    assert torch.equal(whole.codes, pieces.codes)
    assert torch.equal(whole.scales, pieces.scales)
