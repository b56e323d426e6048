"""The ops between a step's products against float64: one rounding to the dtype, nothing else."""

import pytest
import torch
from torch.nn import functional

from llmprof.engine.kernels.activation import silu_mul
from llmprof.engine.kernels.norm import rms_norm, rms_norm_heads_
from llmprof.engine.kernels.residual import add_
from llmprof.engine.kernels.rotary import rotate_

dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
# whole vectors; a vector and a rest; less than a vector; enough rows to share among threads
SHAPES = [(1, 576), (3, 20), (2, 7), (300, 160)]
shapes = pytest.mark.parametrize(("rows", "size"), SHAPES)


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_rounded_once(found: torch.Tensor, exact: torch.Tensor) -> None:
    """Half a unit in the last place, and a little float32 arithmetic before it."""
    step = torch.finfo(found.dtype).eps
    slack = 2e-6 if found.dtype is torch.float32 else 1e-6
    torch.testing.assert_close(found.double(), exact, atol=slack, rtol=step / 2 + slack)


@dtypes
@shapes
def test_rms_norm(dtype: torch.dtype, rows: int, size: int) -> None:
    x, gains = random(rows, size + 3, dtype=dtype)[:, :size], random(size, dtype=dtype, seed=1)
    exact = functional.rms_norm(x.double(), (size,), gains.double(), 1e-3)
    assert_rounded_once(rms_norm(x, gains, 1e-3), exact)


@dtypes
def test_rms_norm_of_heads_in_place(dtype: torch.dtype) -> None:
    fused = random(40, 5, 64, dtype=dtype)
    before, gains = fused.clone(), random(3, 64, dtype=dtype, seed=1)
    rms_norm_heads_(fused[:, :3], gains, 1e-6)
    exact = functional.rms_norm(before[:, :3].double(), (64,), None, 1e-6) * gains.double()
    assert_rounded_once(fused[:, :3], exact)
    assert torch.equal(fused[:, 3:], before[:, 3:])


@dtypes
@shapes
def test_silu_mul(dtype: torch.dtype, rows: int, size: int) -> None:
    gate_up = random(rows, 2 * size, dtype=dtype) * 4
    gate, up = gate_up.double().chunk(2, dim=-1)
    assert_rounded_once(silu_mul(gate_up), functional.silu(gate) * up)


@dtypes
@pytest.mark.parametrize(("rows", "heads", "head_dim"), [(1, 12, 64), (4, 3, 20), (200, 5, 128)])
def test_rotation(dtype: torch.dtype, rows: int, heads: int, head_dim: int) -> None:
    fused = random(rows, heads + 1, head_dim, dtype=dtype)
    before = fused.clone()
    cos, sin = (random(rows, 1, head_dim, dtype=dtype, seed=seed) for seed in (1, 2))
    rotate_(fused[:, :heads], cos, sin)
    own = before[:, :heads].double()
    exact = own * cos.double() + own.roll(head_dim // 2, -1) * sin.double()
    assert_rounded_once(fused[:, :heads], exact)
    assert torch.equal(fused[:, heads:], before[:, heads:])


@dtypes
def test_rotation_of_the_first_channels(dtype: torch.dtype) -> None:
    heads = random(7, 3, 20, dtype=dtype)
    before = heads.clone()
    cos, sin = (random(7, 1, 12, dtype=dtype, seed=seed) for seed in (1, 2))
    rotate_(heads[..., :12], cos, sin)
    own = before[..., :12].double()
    exact = own * cos.double() + own.roll(6, -1) * sin.double()
    assert_rounded_once(heads[..., :12], exact)
    assert torch.equal(heads[..., 12:], before[..., 12:])


@dtypes
@shapes
def test_addition(dtype: torch.dtype, rows: int, size: int) -> None:
    x, y = random(rows, size, dtype=dtype), random(rows, size, dtype=dtype, seed=1)
    expected = x + y
    add_(x, y)
    assert torch.equal(x, expected)
