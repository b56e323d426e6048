"""Keys and values of the tokens so far. One class per layout, one interface for all of them."""

from typing import Final, Protocol

import torch

from llmprof.costs.memory import kv_bytes_per_token
from llmprof.errors import CapabilityError
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import KvLayout

_K_AND_V: Final = 2


class KvCache(Protocol):
    """Holds the same number of tokens for every sequence of a static batch.

    In a step each layer appends the keys and values of the new tokens, then attention reads those
    of all tokens; `advance` counts the new tokens as cached when the step is done.
    """

    num_tokens: int
    """Cached tokens of each sequence."""

    @property
    def bytes_reserved(self) -> int: ...

    @property
    def bytes_per_token(self) -> int:
        """Of one sequence, all layers."""

    @property
    def appends(self) -> bool:
        """Whether `append` moves data: without a cache there is no such op."""

    def begin_step(self, new_tokens: int) -> None:
        """Prepare views for all layers of one step."""

    def append(self, layer: int, keys_values: torch.Tensor) -> None:
        """Take [2, batch, kv_heads, new_tokens, head_dim]: keys, then values."""

    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of cached and new tokens, each [batch, kv_heads, tokens, head_dim]."""

    def advance(self, new_tokens: int) -> None:
        """The step is over."""

    def reset(self, num_tokens: int = 0) -> None:
        """Forget all but the first `num_tokens` tokens; no data moves."""


class NoCache:
    """Every step computes the keys and values of the whole context again."""

    bytes_reserved = 0
    bytes_per_token = 0
    appends = False

    def __init__(self) -> None:
        self.num_tokens = 0
        self._of_layer: torch.Tensor | None = None

    def begin_step(self, new_tokens: int) -> None:
        pass

    def append(self, layer: int, keys_values: torch.Tensor) -> None:
        self._of_layer = keys_values

    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        assert self._of_layer is not None, "append goes before read"
        keys, values = self._of_layer.unbind(0)
        return keys, values

    def advance(self, new_tokens: int) -> None:
        self._of_layer = None

    def reset(self, num_tokens: int = 0) -> None:
        pass


class ContiguousCache:
    """One array for all layers, every sequence reserved at its largest.

    Tokens of one head lie side by side, [layers, K and V, batch, kv_heads, max_tokens, head_dim],
    so that a step appends in place and attention reads views: nothing is copied.
    """

    appends = True

    def __init__(
        self, model: ModelConfig, batch: int, max_tokens: int, dtype: torch.dtype, device: str
    ) -> None:
        shape = (
            model.num_hidden_layers,
            _K_AND_V,
            batch,
            model.num_key_value_heads,
            max_tokens,
            model.head_dim,
        )
        self._store = torch.zeros(shape, dtype=dtype, device=device)
        self._max_tokens = max_tokens
        self._targets: tuple[torch.Tensor, ...] = ()
        self._views: tuple[torch.Tensor, ...] = ()
        self.bytes_reserved = self._store.nbytes
        self.bytes_per_token = int(kv_bytes_per_token(model, dtype.itemsize))
        self.num_tokens = 0

    def begin_step(self, new_tokens: int) -> None:
        end = self.num_tokens + new_tokens
        assert end <= self._max_tokens, f"{end} tokens in a cache for {self._max_tokens}"
        self._targets = self._store.narrow(4, self.num_tokens, new_tokens).unbind(0)
        self._views = self._store.narrow(4, 0, end).flatten(0, 1).unbind(0)

    def append(self, layer: int, keys_values: torch.Tensor) -> None:
        self._targets[layer].copy_(keys_values)

    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._views[_K_AND_V * layer], self._views[_K_AND_V * layer + 1]

    def advance(self, new_tokens: int) -> None:
        self.num_tokens += new_tokens

    def reset(self, num_tokens: int = 0) -> None:
        self.num_tokens = num_tokens

    @torch.inference_mode()
    def fill_random(self, num_tokens: int, seed: int) -> None:
        """Hold `num_tokens` tokens of normal noise, as if a prompt had been prefilled."""
        generator = torch.Generator(self._store.device).manual_seed(seed)
        self._store.narrow(4, 0, num_tokens).normal_(generator=generator)
        self.num_tokens = num_tokens


def make_cache(
    layout: KvLayout,
    model: ModelConfig,
    *,
    batch: int,
    max_tokens: int,
    dtype: torch.dtype,
    device: str,
) -> KvCache:
    """A cache for `batch` sequences of at most `max_tokens` tokens.

    Raises:
        CapabilityError: a layout that this engine does not have.
    """
    match layout:
        case KvLayout.NONE:
            return NoCache()
        case KvLayout.CONTIGUOUS:
            return ContiguousCache(model, batch, max_tokens, dtype, device)
        case KvLayout.PAGED:
            raise CapabilityError("the engine has no paged KV cache")
