import math

import pytest
import torch

from llmprof.engine.attention import make_attention
from llmprof.schema.settings import AttentionKind


class HeldCache:
    """Keys and values as given."""

    num_tokens = 0
    bytes_reserved = 0
    bytes_per_token = 0
    appends = False

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self._held = keys, values

    def begin_step(self, new_tokens: int) -> None:
        pass

    def append(self, layer: int, keys_values: torch.Tensor) -> None:
        pass

    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._held

    def advance(self, new_tokens: int) -> None:
        pass

    def reset(self, num_tokens: int = 0) -> None:
        pass


def by_hand(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """One head and one token at a time, in Python's own floats."""
    batch, new, heads, dim = query.shape
    group, past = heads // keys.shape[1], keys.shape[2] - new
    out = torch.zeros(batch, new, heads, dim)
    for b in range(batch):
        for t in range(new):
            for h in range(heads):
                seen = past + t + 1
                k, v = keys[b, h // group, :seen].tolist(), values[b, h // group, :seen].tolist()
                q = query[b, t, h].tolist()
                dots = [sum(x * y for x, y in zip(q, row, strict=True)) for row in k]
                weights = [math.exp(dot / math.sqrt(dim)) for dot in dots]
                for d in range(dim):
                    mixed = sum(w * row[d] for w, row in zip(weights, v, strict=True))
                    out[b, t, h, d] = mixed / sum(weights)
    return out.view(batch * new, heads * dim)


@pytest.mark.parametrize("kind", AttentionKind)
@pytest.mark.parametrize(("batch", "heads", "kv_heads"), [(1, 4, 4), (1, 6, 2), (2, 6, 2)])
@pytest.mark.parametrize(("new", "past"), [(1, 0), (1, 6), (5, 0), (4, 3)])
def test_against_loops(
    kind: AttentionKind, batch: int, heads: int, kv_heads: int, new: int, past: int
) -> None:
    generator = torch.Generator().manual_seed(heads + new)
    fused = torch.randn(batch, new, heads + 3, 8, generator=generator)
    query = fused[:, :, 2 : 2 + heads]
    room = torch.randn(2, batch, kv_heads, past + new + 5, 8, generator=generator)
    keys, values = room[:, :, :, : past + new]
    out = make_attention(kind)(query, HeldCache(keys, values), 0)
    torch.testing.assert_close(out, by_hand(query, keys, values), atol=2e-6, rtol=2e-5)


def test_the_mask_follows_the_shape() -> None:
    attention = make_attention(AttentionKind.STANDARD)
    for new, past in ((3, 0), (3, 2), (2, 0)):
        query = torch.randn(1, new, 2, 8)
        keys, values = torch.randn(2, 1, 1, past + new, 8)
        out = attention(query, HeldCache(keys, values), 0)
        torch.testing.assert_close(out, by_hand(query, keys, values), atol=2e-6, rtol=2e-5)
