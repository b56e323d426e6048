import dataclasses

import pytest
import torch

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine import unpacked_product
from llmprof.engine.kernels.packed import packed_kernels
from llmprof.engine.kernels.tiles import tiles_available
from llmprof.engine.linear import Linear, kernel_name
from tests.packed_weights import FORMATS, random_packed

INT4 = WeightFormat("int4", 32, symmetric=False)


@pytest.mark.parametrize("rows", [1, 2, 7, 100])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_times_the_transposed_weight(rows: int, with_bias: bool, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(rows)
    x, weight, bias = (
        torch.randint(-4, 5, shape, generator=generator).to(dtype)
        for shape in ((rows, 24), (10, 24), (10,))
    )
    y = Linear(weight, bias if with_bias else None)(x)
    # small integers: every sum is exact in every dtype
    expected = torch.einsum("ri,oi->ro", x.double(), weight.double())
    expected += bias.double() if with_bias else 0
    assert y.dtype is dtype
    torch.testing.assert_close(y.double(), expected, atol=0, rtol=2**-8)


@pytest.mark.parametrize("tile_bytes", [1, 5 * 4 * 192, 1 << 20])
@pytest.mark.parametrize("fmt", FORMATS[::2], ids=lambda fmt: fmt.name)
def test_many_rows_times_a_packed_weight_tile_by_tile(
    fmt: WeightFormat, tile_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = dataclasses.replace(packed_kernels("cpu"), tile_bytes=tile_bytes)
    monkeypatch.setattr(unpacked_product, "packed_kernels", lambda device_type: kernels)
    packed, weights = random_packed(fmt, 13, 192)
    x, bias = torch.randn(40, 192), torch.randn(13)
    expected = x.double() @ torch.from_numpy(weights).T + bias.double()
    y = Linear(packed, bias)(x)
    torch.testing.assert_close(
        y.double(), expected, rtol=0, atol=2e-6 * float(expected.abs().max())
    )


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_a_packed_weight_as_a_table_gives_rows_in_its_dtype(fmt: WeightFormat) -> None:
    packed, weights = random_packed(fmt, 13, 96, torch.bfloat16)
    rows = Linear(packed).rows(torch.tensor([12, 0, 0, 5]))
    expected = torch.from_numpy(weights[[12, 0, 0, 5]]).bfloat16()
    assert rows.dtype is torch.bfloat16
    torch.testing.assert_close(rows.float(), expected.float(), rtol=2**-7, atol=0)


def test_a_float_weight_as_a_table() -> None:
    weight = torch.randn(5, 8)
    assert torch.equal(Linear(weight).rows(torch.tensor([4, 4, 1])), weight[[4, 4, 1]])


def test_shape_is_out_by_in() -> None:
    assert Linear(torch.empty(10, 24)).shape == (10, 24)
    assert Linear(random_packed(INT4, 10, 64)[0]).shape == (10, 64)


def test_the_kernel_follows_the_rows() -> None:
    floats, packed = Linear(torch.empty(64, 128)), Linear(random_packed(INT4, 64, 128)[0])
    assert floats.kernel_name(1) == "llmprof::matvec on fp32"
    assert packed.kernel_name(1) == "llmprof::matvec on int4_g32_asym"
    assert floats.kernel_name(64) == "torch.nn.functional.linear"
    assert packed.kernel_name(64).startswith("llmprof::unpack_rows_ on int4_g32_asym, torch")


def test_the_kernel_of_a_device_and_a_format() -> None:
    assert kernel_name(1, "cpu") == "llmprof::matvec on bf16"
    assert kernel_name(1, "cpu", INT4) == "llmprof::matvec on int4_g32_asym"
    assert kernel_name(1, "cuda:0") == "torch.nn.functional.linear"
    many_rows = "llmprof::matmul on bf16" if tiles_available() else "torch.nn.functional.linear"
    assert kernel_name(500, "cpu") == many_rows
    assert kernel_name(500, "cpu", WeightFormat("fp32")) == "torch.nn.functional.linear"
