"""Attention with capped scores, tile by tile: what no fused kernel of torch does on a CPU.

Online softmax (Milakov and Gimelshein 2018; Dao et al. 2022): a tile of scores stays in a cache,
the whole matrix is never written.
"""

import math
from collections.abc import Iterator
from typing import Final

import torch

from llmprof.engine.kernels.launch import observable

KERNEL: Final = "llmprof.capped_attention (tiles of torch.bmm, torch.tanh, torch.exp)"

_SCORES: Final = 1 << 17
"""Of a tile: 512 KiB in fp32, within a second-level cache."""
_LEAST_KEYS: Final = 64


@observable(
    "capped_attention",
    fake=lambda queries, keys, values, hidden, scale, cap: torch.empty_like(queries),
)
def capped_attention(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    hidden: torch.Tensor | None,
    scale: float,
    cap: float,
) -> torch.Tensor:
    """Every query against all keys that `hidden` does not hide.

    Args:
        queries: [sequences, kv_heads, group, new_tokens, head_dim], at any strides.
        keys: [sequences, kv_heads, tokens, head_dim].
        values: as the keys.
        hidden: true where a query must not see a token, [new_tokens, tokens] or [sequences, 1, 1,
            tokens]; None: every query sees all.
        scale: of the products.
        cap: scores s become cap * tanh(s / cap).

    Returns:
        As the queries, new and contiguous.
    """
    sequences, kv_heads, group, new_tokens, head_dim = queries.shape
    tokens = keys.shape[2]
    rows = queries.reshape(sequences * kv_heads, group * new_tokens, head_dim).float()
    step = max(_LEAST_KEYS, _SCORES // max(1, rows.shape[0] * rows.shape[1]))
    peak = rows.new_full((*rows.shape[:2], 1), -math.inf)
    mass, sums = torch.zeros_like(peak), torch.zeros_like(rows)
    for first, last in _tiles(tokens, step):
        tile_keys, tile_values = (
            one[:, :, first:last].reshape(-1, last - first, head_dim).float()
            for one in (keys, values)
        )
        scores = torch.bmm(rows, tile_keys.mT).mul_(scale / cap).tanh_().mul_(cap)
        if hidden is not None:
            by_head = scores.view(sequences, kv_heads, group, new_tokens, last - first)
            part = hidden[..., first:last]
            by_head.masked_fill_(part if part.dim() == 2 else part.unsqueeze(1), -math.inf)
        higher = torch.maximum(peak, scores.amax(-1, keepdim=True))
        # a row that has seen no token yet has no peak: its sums are zero whatever they decay by
        finite = higher.masked_fill(higher == -math.inf, 0.0)
        decay, weights = (peak - finite).exp_(), scores.sub_(finite).exp_()
        mass = mass.mul_(decay).add_(weights.sum(-1, keepdim=True))
        sums = sums.mul_(decay).baddbmm_(weights, tile_values)
        peak = higher
    return sums.div_(mass).to(queries.dtype).view(queries.shape)


def _tiles(tokens: int, step: int) -> Iterator[tuple[int, int]]:
    return ((first, min(first + step, tokens)) for first in range(0, tokens, step))
