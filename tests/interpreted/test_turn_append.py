"""Norm, rotation and append in one launch against the three kernels that do them one by one."""

import pytest
import torch

from llmprof.engine.kernels.triton.kv_append import triton_kv_append_
from llmprof.engine.kernels.triton.norm import triton_rms_norm_heads_
from llmprof.engine.kernels.triton.rotary import triton_rotate_
from llmprof.engine.kernels.triton.turn_append import triton_turn_append_

QUERY_HEADS, KV_HEADS, BLOCK_TOKENS = 4, 2, 6
SLOTS = torch.tensor([17, 0, 5], dtype=torch.int32)
EPS = 1e-5


def drawn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@pytest.mark.parametrize(
    ("head_dim", "rotary_dim", "offset"),
    [(64, 64, None), (80, 80, 0.0), (64, 32, None), (80, 40, 1.0)],
)
@pytest.mark.parametrize("stored", ["same", "int8", "fp8"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_as_three_kernels(
    head_dim: int, rotary_dim: int, offset: float | None, stored: str, dtype: torch.dtype
) -> None:
    """Bit for bit; rows at a stride, and heads that turn in part."""
    num_heads = QUERY_HEADS + 2 * KV_HEADS
    rows = drawn(3, num_heads * head_dim + 16, dtype=dtype)[:, 16:]
    heads = rows.view(3, num_heads, head_dim)
    gains = drawn(QUERY_HEADS + KV_HEADS, head_dim, dtype=dtype) if offset is not None else None
    cos, sin = (drawn(3, size, rotary_dim, dtype=dtype)[:, :1].contiguous() for size in (1, 2))
    kept = {"same": dtype, "int8": torch.int8, "fp8": torch.float8_e4m3fn}[stored]
    store = torch.zeros(2, 4, KV_HEADS, BLOCK_TOKENS, head_dim).to(kept)
    scales = torch.zeros(store.shape[:-1]) if stored == "int8" else None

    expected = heads.clone()
    expected_store, expected_scales = store.clone(), None if scales is None else scales.clone()
    turned = expected[:, : QUERY_HEADS + KV_HEADS]
    if gains is not None:
        triton_rms_norm_heads_(turned, gains, EPS, offset or 0.0)
    triton_rotate_(turned[..., :rotary_dim], cos, sin)
    new = expected[:, QUERY_HEADS:].view(len(expected), 2, KV_HEADS, head_dim)
    triton_kv_append_(new, expected_store, expected_scales, SLOTS)

    triton_turn_append_(heads, gains, EPS, offset or 0.0, cos, sin, store, scales, SLOTS)
    assert heads.equal(expected)
    assert not heads[:, :1].equal(
        drawn(3, num_heads * head_dim + 16, dtype=dtype)[:, 16 : 16 + head_dim]
    )
    assert store.view(torch.uint8).equal(expected_store.view(torch.uint8))
    if scales is not None and expected_scales is not None:
        assert scales.equal(expected_scales)
