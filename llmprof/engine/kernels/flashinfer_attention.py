"""A call of FlashInfer's attention as an operator of ours, which a counting pass sees.

FlashInfer's own kernels go past torch's dispatcher.
"""

from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

import torch

from llmprof.engine.kernels.launch import observable


class PagedWrapper(Protocol):
    """`BatchDecodeWithPagedKVCacheWrapper` or `BatchPrefillWithPagedKVCacheWrapper` of FlashInfer."""

    def plan(self, *args: Any, **kwargs: Any) -> None: ...
    def run(self, q: torch.Tensor, paged_kv_cache: tuple[torch.Tensor, ...]) -> torch.Tensor: ...


_PLANNED: Final[WeakValueDictionary[int, PagedWrapper]] = WeakValueDictionary()


def handle_of(wrapper: PagedWrapper) -> int:
    """What stands for a wrapper among the arguments of an operator; valid as long as it lives."""
    _PLANNED[id(wrapper)] = wrapper
    return id(wrapper)


@observable(
    "flashinfer_attention",
    fake=lambda query, *_: query.new_empty(query.shape[0], query.shape[1] * query.shape[2]),
)
def flashinfer_attention(
    query: torch.Tensor,
    store: torch.Tensor,
    bounds: torch.Tensor,
    context_lens: torch.Tensor,
    wrapper: int,
) -> torch.Tensor:
    """Attend by the plan that a wrapper has made for this step.

    Args:
        query: [rows, heads, head_dim].
        store: keys and values [2, blocks, kv_heads, block_tokens, head_dim]: FlashInfer's layout HND.
        bounds: on the host, where each sequence's rows start and the last one's end [sequences + 1];
            for the counting pass.
        context_lens: [sequences]; likewise.
        wrapper: its handle.

    Returns:
        [rows, heads * head_dim].
    """
    keys, values = store.unbind(0)
    return _PLANNED[wrapper].run(query, (keys, values)).flatten(1)
