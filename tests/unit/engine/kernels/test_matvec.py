"""Products of a few rows against float64 products of the weights that the codes stand for."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.kernels import matvec as module
from llmprof.engine.kernels import matvec_dots, weight_decoders
from llmprof.engine.kernels.matvec import (
    compile_matvec,
    fitting_nests,
    matvec,
    most_rows,
    run_matvec,
)
from llmprof.engine.kernels.matvec_plan import MatvecVariant
from llmprof.engine.kernels.tiles import tiles_available
from tests.packed_weights import FORMATS, Matrix, random_packed

Operands = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
TOLERANCE = {"fp32": 2e-6, "bf16": 2**-8, "fp16": 2**-10}
"""Of the largest output: rounding of y; for bf16 that of weights too, where tiles multiply."""


def product(
    fmt: WeightFormat,
    out_features: int,
    in_features: int,
    rows: int,
    activations: str,
    *,
    bias: bool,
) -> tuple[torch.Tensor, Matrix]:
    """What the kernel gives, and what it should give."""
    dtype = DTYPES[activations]
    drawn = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, in_features, generator=drawn).to(dtype)
    b = torch.randn(out_features, generator=drawn).to(dtype) if bias else None
    if fmt.packed:
        packed, weights = random_packed(fmt, out_features, in_features, dtype)
        operands: Operands = (packed.codes, packed.scales, packed.minimums)
    else:
        floats = torch.randn(out_features, in_features, generator=drawn).to(DTYPES[fmt.number])
        operands, weights = (floats, None, None), floats.double().numpy()
    y = matvec(x, *operands, b, fmt.number, fmt.group_size or 0)
    expected = x.double().numpy() @ weights.T
    return y, expected + (b.double().numpy() if b is not None else 0)


def assert_close(y: torch.Tensor, expected: Matrix, activations: str) -> None:
    assert y.dtype is DTYPES[activations]
    assert y.shape == expected.shape
    largest = np.abs(expected).max()
    np.testing.assert_allclose(
        y.double().numpy(), expected, rtol=0, atol=TOLERANCE[activations] * largest
    )


@pytest.fixture
def without_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "_TILES_FROM_ROWS", {})
    monkeypatch.setattr(matvec_dots, "integer_dots_available", lambda: False)
    module._kernel.cache_clear()
    yield
    module._kernel.cache_clear()


@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_packed_weights_in_float32(fmt: WeightFormat, rows: int) -> None:
    """576 is no multiple of 128: a row's last group is smaller, and so is its last step."""
    y, expected = product(fmt, 37, 576, rows, "fp32", bias=rows == 3)
    assert_close(y, expected, "fp32")


@pytest.mark.parametrize("rows", [5, 29])
@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_packed_weights_with_bf16_activations(fmt: WeightFormat, rows: int) -> None:
    """Rows that fill no tile; 1, 2 and 16 of them are multiplied below, by every nest."""
    if rows > most_rows(fmt, (37, 192), "bf16"):
        pytest.skip("this CPU has no kernel for so many rows")
    y, expected = product(fmt, 37, 192, rows, "bf16", bias=rows == 5)
    assert_close(y, expected, "bf16")


GROUPED = [fmt for fmt in FORMATS if fmt.group_size]


@pytest.mark.parametrize("in_features", [512, 544, 576, 2080, 4096])
@pytest.mark.parametrize("fmt", GROUPED, ids=lambda fmt: fmt.name)
def test_integer_dots(fmt: WeightFormat, in_features: int) -> None:
    """Rows that end inside of a vector of codes, of a group and of a vector of scales; large activations."""
    for rows in (1, matvec_dots.MOST_ROWS) if in_features in (544, 576) else (1,):
        variant = MatvecVariant(fmt, in_features, rows, "bf16", has_bias=True, few_outputs=False)
        if not matvec_dots.dots_fit(variant):
            pytest.skip("too few columns for this group size, or no such instruction")
        packed, weights = random_packed(fmt, 37, in_features, torch.bfloat16)
        x = (torch.randn(rows, in_features) * torch.logspace(-3, 3, in_features)).bfloat16()
        bias = torch.randn(37).bfloat16()
        y = matvec(
            x, packed.codes, packed.scales, packed.minimums, bias, fmt.number, fmt.group_size or 0
        )
        assert_close(y, x.double().numpy() @ weights.T + bias.double().numpy(), "bf16")


@pytest.mark.parametrize(
    ("fmt", "rows"),
    [*((fmt, rows) for fmt in FORMATS for rows in (1, 16)), *((fmt, 2) for fmt in FORMATS[::3])],
)
def test_every_nest_that_fits_gives_the_product(fmt: WeightFormat, rows: int) -> None:
    """Whichever is the fastest; the first of them is the one that runs. Integers round x to 8 bits."""
    torch.manual_seed(rows)
    packed, weights = random_packed(fmt, 37, 512, torch.bfloat16)
    stored = (packed.codes, packed.scales, packed.minimums)
    x = torch.randn(rows, 512).bfloat16()
    variant = MatvecVariant(fmt, 512, rows, "bf16", has_bias=False, few_outputs=False)
    found = [
        run_matvec(compile_matvec(variant, nest), x, *stored, None)
        for nest in fitting_nests(variant)
    ]
    expected = x.double().numpy() @ weights.T
    most = 2 * TOLERANCE["bf16"] * np.abs(expected).max()
    for y in found:
        np.testing.assert_allclose(y.double().numpy(), expected, rtol=0, atol=most)
    assert torch.equal(found[0], matvec(x, *stored, None, fmt.number, fmt.group_size or 0))


@pytest.mark.skipif(not matvec_dots.integer_dots_available(), reason="no such instruction")
def test_integer_dots_keep_more_than_bf16_does() -> None:
    """Few outputs are rounded to another number than the exact ones; 8-bit activations change a third."""
    torch.manual_seed(0)
    packed, weights = random_packed(WeightFormat("int8", 32), 64, 1024, torch.bfloat16)
    x = torch.zeros(1, 1024).bfloat16()
    x[0, :32] = torch.rand(32).bfloat16()
    x[0, 7] = 1.0
    y = matvec(x, packed.codes, packed.scales, None, None, "int8", 32).double().numpy()
    expected = x.double().numpy() @ weights.T
    rounded = torch.from_numpy(expected).bfloat16().double().numpy()
    assert (y != rounded).mean() < 0.15


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_no_number_stays_none(wrong: float) -> None:
    packed, _ = random_packed(WeightFormat("int8", 32), 37, 512, torch.bfloat16)
    x = torch.randn(1, 512).bfloat16()
    x[0, 100] = wrong
    y = matvec(x, packed.codes, packed.scales, None, None, "int8", 32)
    assert not torch.isfinite(y).any()


@pytest.mark.parametrize("rows", [2, 16])
@pytest.mark.parametrize("fmt", FORMATS[1::2], ids=lambda fmt: fmt.name)
@pytest.mark.usefixtures("without_tiles")
def test_bf16_activations_on_a_cpu_without_tiles(fmt: WeightFormat, rows: int) -> None:
    y, expected = product(fmt, 37, 192, rows, "bf16", bias=True)
    assert_close(y, expected, "bf16")


@pytest.mark.parametrize("fmt", FORMATS[3:5], ids=lambda fmt: fmt.name)
@pytest.mark.usefixtures("without_tiles")
def test_int4_without_a_table_in_a_register(
    fmt: WeightFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on CPUs without AVX-512."""
    monkeypatch.setattr(weight_decoders, "cpu_features", frozenset)
    y, expected = product(fmt, 20, 192, 2, "fp32", bias=False)
    assert_close(y, expected, "fp32")


@pytest.mark.parametrize("activations", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("number", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("rows", [1, 9])
def test_float_weights(number: str, activations: str, rows: int) -> None:
    y, expected = product(WeightFormat(number), 50, 160, rows, activations, bias=True)
    assert_close(y, expected, activations)


@pytest.mark.parametrize("number", ["bf16", "int8"])
@pytest.mark.parametrize(
    ("out_features", "in_features", "rows"), [(1, 1, 1), (3, 17, 2), (5, 45, 5), (40, 33, 16)]
)
def test_rows_that_fill_no_vector_and_matrices_that_fill_no_block(
    number: str, out_features: int, in_features: int, rows: int
) -> None:
    y, expected = product(WeightFormat(number), out_features, in_features, rows, "fp32", bias=True)
    assert_close(y, expected, "fp32")


def test_every_thread_does_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that no number of threads divides, with weights enough that all are woken."""
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            y, expected = product(WeightFormat("bf16"), 1030, 256, 2, "fp32", bias=False)
            assert_close(y, expected, "fp32")
    finally:
        torch.set_num_threads(before)


def test_activations_that_are_not_contiguous() -> None:
    weights, x = torch.randn(20, 64), torch.randn(64, 3).T
    y = matvec(x, weights, None, None, None, "fp32", 0)
    torch.testing.assert_close(y, x @ weights.T, rtol=1e-5, atol=1e-5)


def test_torch_sees_an_operator_where_it_looks() -> None:
    """As the compiler and the counting pass do: with its shape, and equal to the direct call."""
    x, weights = torch.randn(3, 64), torch.randn(20, 64)
    arguments = (x, weights, None, None, None, "fp32", 0)
    assert torch.equal(torch.ops.llmprof.matvec(*arguments), matvec(*arguments))
    torch.library.opcheck(torch.ops.llmprof.matvec.default, arguments, test_utils="test_faketensor")


def test_tiles_take_more_rows_in_one_pass() -> None:
    limit = 32 if tiles_available() else 16
    assert most_rows(WeightFormat("bf16"), (64, 128), "bf16") == limit
    assert most_rows(WeightFormat("bf16"), (64, 128), "fp32") == 16
    assert most_rows(WeightFormat("bf16"), (64, 100), "bf16") == 16


def test_a_torch_product_after_ours_is_right() -> None:
    """Tiles are configured per thread, and oneDNN relies on its own configuration."""
    x, weights = torch.randn(64, 256).bfloat16(), torch.randn(128, 256).bfloat16()
    before = torch.nn.functional.linear(x, weights)
    for _ in range(3):
        matvec(x[:7], weights, None, None, None, "bf16", 0)
        assert torch.equal(torch.nn.functional.linear(x, weights), before)
