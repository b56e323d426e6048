"""Products of many rows against float64: sizes that end within a block, bias, threads."""

from collections.abc import Iterator

import pytest
import torch

from llmprof.engine.kernels import launch
from llmprof.engine.kernels.matmul import matmul, matmul_fits
from llmprof.engine.kernels.tiles import tiles_available

needs_tiles = pytest.mark.skipif(not tiles_available(), reason="needs AMX")
SHAPES = [
    # rows, in_features, out_features
    (512, 576, 960),
    (32, 32, 32),
    (33, 64, 47),
    (77, 96, 300),
    (1000, 64, 90),  # two pieces of rows
    (65, 64, 3000),  # several blocks of columns at once
]
shapes = pytest.mark.parametrize(("rows", "in_features", "out_features"), SHAPES)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Five, however small the work is."""
    monkeypatch.setattr(launch, "_SHARED_FROM_BYTES", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(5)
    yield
    torch.set_num_threads(before)


def random_product(
    rows: int, in_features: int, out_features: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    sizes = ((rows, in_features), (out_features, in_features), (out_features,))
    x, weight, bias = (torch.randn(size, generator=generator).bfloat16() for size in sizes)
    return x, weight, bias


@needs_tiles
@shapes
@pytest.mark.parametrize("with_bias", [False, True])
def test_one_rounding_of_the_exact_product(
    rows: int, in_features: int, out_features: int, with_bias: bool
) -> None:
    x, weight, bias = random_product(rows, in_features, out_features)
    exact = x.double() @ weight.double().T + (bias.double() if with_bias else 0)
    found = matmul(x, weight, bias if with_bias else None)
    # half a unit in the last of 8 bits, and what float32 sums lose
    torch.testing.assert_close(found.double(), exact, rtol=2**-8, atol=1e-5 * in_features**0.5)


@needs_tiles
@pytest.mark.usefixtures("threads")
@shapes
def test_threads_take_pieces_until_none_is_left(
    rows: int, in_features: int, out_features: int
) -> None:
    x, weight, bias = random_product(rows, in_features, out_features)
    found = matmul(x, weight, bias)
    torch.set_num_threads(1)
    assert torch.equal(found, matmul(x, weight, bias))


@needs_tiles
def test_what_is_no_number_stays_none() -> None:
    x, weight, _ = random_product(40, 64, 64)
    x[7, 3] = float("nan")
    assert matmul(x, weight, None).isnan().any(1).nonzero().tolist() == [[7]]


@needs_tiles
def test_rows_at_a_stride() -> None:
    x, weight, _ = random_product(40, 128, 64)
    half = x[:, :64]
    assert torch.equal(
        matmul(half, weight[:, :64].contiguous(), None),
        matmul(half.contiguous(), weight[:, :64].contiguous(), None),
    )


@needs_tiles
def test_torch_sees_one_operator() -> None:
    product = random_product(40, 64, 64)
    torch.library.opcheck(torch.ops.llmprof.matmul, product, test_utils="test_faketensor")


@pytest.mark.parametrize(
    ("shape", "rows"), [((64, 48), 64), ((31, 64), 64), ((64, 64), 31), ((64, 2048), 512)]
)
def test_what_is_left_to_torch(shape: tuple[int, int], rows: int) -> None:
    assert not matmul_fits(shape, rows)


def test_what_is_not() -> None:
    assert matmul_fits((32, 32), 32) == tiles_available()
