import math

import pytest
import torch

from llmprof.engine.norm import HeadNorm, RmsNorm, kernel_name


def normed(row: list[float], gain: list[float], eps: float) -> list[float]:
    size = math.sqrt(sum(x * x for x in row) / len(row) + eps)
    return [x / size * g for x, g in zip(row, gain, strict=True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rms_norm(dtype: torch.dtype) -> None:
    x = torch.tensor([[3.0, -4.0, 0.5, 2.0], [0.0, 0.0, 0.0, 0.25]], dtype=dtype)
    gain = torch.tensor([1.0, 0.5, -2.0, 1.25], dtype=dtype)
    expected = [normed(row, gain.tolist(), 1e-2) for row in x.tolist()]
    found = RmsNorm(gain, 1e-2)(x)
    assert found.dtype is dtype
    # one rounding to the dtype: half a step of its mantissa
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), torch.tensor(expected).double(), atol=0, rtol=step)


def test_large_halves_do_not_overflow() -> None:
    x = torch.full((1, 64), 60_000.0, dtype=torch.float16)
    found = RmsNorm(torch.ones(64, dtype=torch.float16), 1e-6)(x)
    torch.testing.assert_close(found, torch.ones_like(x))


def test_every_head_is_normed_by_itself_in_place() -> None:
    fused = torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(0))
    before = fused.clone()
    query, key = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([-1.0, 1.0, 0.5, 2.0])
    HeadNorm(query, key, 2, 1, 1e-6).apply_(fused[:, :3])
    for head, gain in enumerate((query, query, key)):
        expected = normed(before[4, head].tolist(), gain.tolist(), 1e-6)
        torch.testing.assert_close(fused[4, head], torch.tensor(expected))
    assert torch.equal(fused[:, 3:], before[:, 3:])


def test_the_kernel_is_named() -> None:
    assert kernel_name("cuda:0") == "torch.nn.functional.rms_norm"
    assert kernel_name("cpu") == "llmprof::rms_norm"
