"""Attention over cached keys and values, with grouped query heads and never a copied key or value.

Query heads h * group ... (h + 1) * group - 1 share KV head h (Ainslie et al. 2023), so a KV head's
queries are folded into rows of one product instead of repeating its keys and values.
"""

import math
from typing import Final, Protocol

import torch
from torch.nn import functional

from llmprof.engine.kv_cache import KvCache
from llmprof.schema.settings import AttentionKind


class Attention(Protocol):
    @property
    def kernel(self) -> str:
        """The kernels that run."""

    def __call__(self, query: torch.Tensor, cache: KvCache, layer: int) -> torch.Tensor:
        """Attend from the new tokens to all tokens up to themselves.

        Args:
            query: [batch, new_tokens, heads, head_dim], rotated.
            cache: where this layer's keys and values are, those of the new tokens included.
            layer: whose keys and values.

        Returns:
            [batch * new_tokens, heads * head_dim].
        """


class StandardAttention:
    """Three kernels with the score matrix written to memory between them, and a mask if needed."""

    kernel: Final = "torch.baddbmm, torch.softmax, torch.bmm"

    def __init__(self) -> None:
        self._mask: torch.Tensor | None = None

    def __call__(self, query: torch.Tensor, cache: KvCache, layer: int) -> torch.Tensor:
        keys, values = cache.read(layer)
        batch, new_tokens, heads, head_dim = query.shape
        kv_heads, tokens = keys.shape[1], keys.shape[2]
        queries = _by_kv_head(query, kv_heads).flatten(0, 1).flatten(1, 2)
        keys, values = keys.flatten(0, 1), values.flatten(0, 1)
        unused = queries.new_empty(1, 1, 1)
        scores = torch.baddbmm(
            unused, queries, keys.mT, beta=0, alpha=1 / math.sqrt(head_dim)
        )  # [batch * kv_heads, group * new_tokens, tokens]
        if new_tokens > 1:
            hidden = self._hidden(new_tokens, tokens, query.device)
            scores.view(-1, new_tokens, tokens).masked_fill_(hidden, -math.inf)
        out = torch.bmm(torch.softmax(scores, dim=-1), values)
        return _by_token(out.view(batch, kv_heads, heads // kv_heads, new_tokens, head_dim))

    def _hidden(self, new_tokens: int, tokens: int, device: torch.device) -> torch.Tensor:
        """True where a new token must not look; kept for the other layers of the step."""
        if self._mask is None or self._mask.shape != (new_tokens, tokens):
            self._mask = _visible(new_tokens, tokens, device).logical_not_()
        return self._mask


class FlashAttention:
    """One fused kernel (Dao et al. 2022): scores stay on chip."""

    kernel: Final = "torch.nn.functional.scaled_dot_product_attention"

    def __call__(self, query: torch.Tensor, cache: KvCache, layer: int) -> torch.Tensor:
        keys, values = cache.read(layer)
        if query.shape[1] == 1:
            return self._one_token(query, keys, values)
        return self._many_tokens(query, keys, values)

    def _one_token(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """The group becomes the rows of one head: each KV head is read once, and nothing is masked."""
        batch, _, heads, head_dim = query.shape
        queries = query.reshape(batch * keys.shape[1], 1, -1, head_dim)
        out = functional.scaled_dot_product_attention(
            queries, keys.flatten(0, 1).unsqueeze(1), values.flatten(0, 1).unsqueeze(1)
        )
        return out.reshape(batch, heads * head_dim)

    def _many_tokens(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """The group becomes the heads, and keys and values are repeated with stride zero."""
        batch, new_tokens, heads, head_dim = query.shape
        kv_heads, tokens = keys.shape[1], keys.shape[2]
        group = heads // kv_heads
        whole_prompt = new_tokens == tokens
        out = functional.scaled_dot_product_attention(
            _by_kv_head(query, kv_heads).flatten(0, 1),
            keys.flatten(0, 1).unsqueeze(1).expand(-1, group, -1, -1),
            values.flatten(0, 1).unsqueeze(1).expand(-1, group, -1, -1),
            attn_mask=None if whole_prompt else _visible(new_tokens, tokens, query.device),
            is_causal=whole_prompt,
        )
        return _by_token(out.view(batch, kv_heads, group, new_tokens, head_dim))


def make_attention(kind: AttentionKind) -> Attention:
    match kind:
        case AttentionKind.STANDARD:
            return StandardAttention()
        case AttentionKind.FLASH:
            return FlashAttention()


def _by_kv_head(query: torch.Tensor, kv_heads: int) -> torch.Tensor:
    """[batch, tokens, heads, head_dim] -> view [batch, kv_heads, group, tokens, head_dim]."""
    batch, tokens, heads, head_dim = query.shape
    grouped = query.view(batch, tokens, kv_heads, heads // kv_heads, head_dim)
    return grouped.permute(0, 2, 3, 1, 4)


def _by_token(out: torch.Tensor) -> torch.Tensor:
    """[batch, kv_heads, group, tokens, head_dim] -> [batch * tokens, heads * head_dim]."""
    return out.permute(0, 3, 1, 2, 4).flatten(0, 1).flatten(1)


def _visible(new_tokens: int, tokens: int, device: torch.device) -> torch.Tensor:
    """[new_tokens, tokens]: True where a new token sees a token, itself included."""
    seen = torch.ones(new_tokens, tokens, dtype=torch.bool, device=device)
    return seen.tril_(tokens - new_tokens)
