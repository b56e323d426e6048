import pytest
import torch

from llmprof.engine.kernels.kv_append import kv_append_

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
dtypes = pytest.mark.parametrize("dtype", DTYPES)
# rows, KV heads, head_dim, tokens per block, blocks
shapes = pytest.mark.parametrize(
    "shape", [(1, 3, 64, 16, 5), (4, 2, 20, 50, 4), (200, 2, 128, 8, 30)]
)
Shape = tuple[int, int, int, int, int]


def drawn(shape: Shape, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values as a view of a fused projection, and as many different slots."""
    rows, heads, head_dim, block_tokens, blocks = shape
    generator = torch.Generator().manual_seed(rows)
    fused = torch.randn((rows, 3 + 2 * heads, head_dim), generator=generator).to(dtype)
    fused[0, -1] = 0
    slots = torch.randperm(blocks * block_tokens, generator=generator)[:rows].to(torch.int32)
    return fused.narrow(1, 3, 2 * heads).view(rows, 2, heads, head_dim), slots


def by_token(store: torch.Tensor) -> torch.Tensor:
    """[2, blocks, heads, block_tokens, ...] -> [slots, 2, heads, ...]."""
    return store.transpose(2, 3).flatten(1, 2).transpose(0, 1)


@dtypes
@shapes
def test_what_is_stored_as_it_is(shape: Shape, dtype: torch.dtype) -> None:
    new, slots = drawn(shape, dtype)
    _, heads, head_dim, block_tokens, blocks = shape
    store = torch.full((2, blocks, heads, block_tokens, head_dim), 9.0, dtype=dtype)
    kv_append_(new, store, None, slots)
    tokens = by_token(store)
    assert torch.equal(tokens[slots.long()], new)
    untouched = torch.ones(blocks * block_tokens, dtype=torch.bool)
    untouched[slots.long()] = False
    assert bool((tokens[untouched] == 9.0).all())


@dtypes
@shapes
def test_int8_has_a_scale_per_token_and_head(shape: Shape, dtype: torch.dtype) -> None:
    new, slots = drawn(shape, dtype)
    _, heads, head_dim, block_tokens, blocks = shape
    store = torch.zeros((2, blocks, heads, block_tokens, head_dim), dtype=torch.int8)
    scales = torch.zeros(store.shape[:-1])
    kv_append_(new, store, scales, slots)
    numbers, scale = by_token(store)[slots.long()], by_token(scales)[slots.long()]
    torch.testing.assert_close(scale, new.float().abs().amax(-1) / 127)
    error = (numbers * scale.unsqueeze(-1) - new.float()).abs()
    assert bool((error <= 0.501 * scale.unsqueeze(-1)).all())
    assert not numbers[0, 1, -1].any(), "a vector of zeros has the scale zero"


@dtypes
def test_fp8_rounds_as_torch_does_and_stops_at_its_largest(dtype: torch.dtype) -> None:
    powers = torch.linspace(-14, 12, 128).exp2()
    new = torch.stack((powers, -powers)).view(1, 2, 1, 128).to(dtype)
    store = torch.zeros(2, 1, 1, 4, 128).to(torch.float8_e4m3fn)
    kv_append_(new, store, None, torch.tensor([2], dtype=torch.int32))
    expected = new[0, :, 0].float().clamp(-448, 448).to(torch.float8_e4m3fn)
    assert torch.equal(store[:, 0, 0, 2].view(torch.uint8), expected.view(torch.uint8))
