"""Bytes of weights and of the KV cache that operators are really handed, from the tensors themselves."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from llmprof.engine.engine import Engine
from llmprof.engine.model import Decoder
from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.schema.cost import OpGroup, StepShape

_LOOK_UPS = ("aten.embedding", "llmprof.unpack_rows_")


class TouchedBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Per step: weight bytes by group, KV bytes read and written, bytes of copies made of either.

    A tensor counts with the elements that it shows, those that are repeated with stride zero once.
    """

    def __init__(self, engine: Engine, cache: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._weights = {_storage(tensor) for tensor in weight_tensors(engine.decoder)}
        self._kv = {_storage(t) for t in (cache._store, cache._scales) if t is not None}
        self._float_bytes = engine.dtype.torch.itemsize
        self._group = OpGroup.OTHER
        self.shapes: list[StepShape] = []
        self.weights: list[Counter[OpGroup]] = []
        self.moved: list[Counter[str]] = []

    def step_begin(self, shape: StepShape) -> None:
        self.shapes.append(shape)
        self.weights.append(Counter())
        self.moved.append(Counter())

    def step_end(self) -> None:
        pass

    def group_begin(self, group: OpGroup) -> None:
        self._group = group

    def group_end(self) -> None:
        self._group = OpGroup.OTHER

    def __torch_dispatch__(
        self,
        func: OpOverload[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.shapes and not func.is_view and isinstance(out, torch.Tensor | None):
            self._note(str(func.overloadpacket), args, out)
        return out

    def _note(self, name: str, args: tuple[Any, ...], out: torch.Tensor | None) -> None:
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        weights = [t for t in tensors if _storage(t) in self._weights]
        cached = [t for t in tensors if _storage(t) in self._kv]
        if weights:
            self.weights[-1][self._group] += self._weight_bytes(name, args, weights)
        if name == "llmprof.unpack_rows_" and self._group is not OpGroup.EMBEDDING:
            self.moved[-1]["unpacked"] += args[0].nbytes
        if cached:
            self._note_cache(name, args, cached, out)

    def _weight_bytes(self, name: str, args: tuple[Any, ...], weights: list[torch.Tensor]) -> int:
        """A look-up reads a row per id; an unpacking of adjacent rows as many as it writes."""
        if name == "aten.embedding":
            return int(args[1].numel() * args[0][0].nbytes)
        if name == "llmprof.unpack_rows_":
            return len(args[0]) * sum(t[0].nbytes for t in weights)
        return sum(map(_shown_bytes, weights))

    def _note_cache(
        self, name: str, args: tuple[Any, ...], cached: list[torch.Tensor], out: torch.Tensor | None
    ) -> None:
        """New tokens were just produced: reading them back is no traffic of the cache."""
        moved, shape = self.moved[-1], self.shapes[-1]
        if name == "llmprof.kv_append_":
            rows = args[3].numel()
            moved["kv_write"] += rows * _per_token(cached)
        elif name == "llmprof.decode_attention":
            lens = args[4]
            moved["kv_read"] += (int(lens.sum()) - lens.numel()) * _per_token(cached)
        elif name == "aten.index_select":
            if cached[0].dim() == 3:
                assert out is not None
                moved["gathered"] += out.numel() * self._float_bytes
        else:
            share = shape.cached_tokens / (shape.cached_tokens + shape.new_tokens)
            moved["kv_read"] += round(sum(map(_shown_bytes, cached)) * share)


def weight_tensors(decoder: Decoder) -> Iterator[torch.Tensor]:
    """Every tensor that holds weights, biases or gains."""
    for linear in (decoder.embedding, decoder.head, *_linears(decoder)):
        weight = linear.weight
        if isinstance(weight, PackedWeight):
            yield from (t for t in (weight.codes, weight.scales, weight.minimums) if t is not None)
        else:
            yield weight
        if linear.bias is not None:
            yield linear.bias
    for layer in decoder.layers:
        yield layer.input_norm.gain
        yield layer.feed_forward_norm.gain
        if layer.head_norm is not None:
            yield layer.head_norm.gains
    yield decoder.final_norm.gain


def _linears(decoder: Decoder) -> Iterator[Any]:
    for layer in decoder.layers:
        yield from (layer.qkv, layer.output, *layer.feed_forward.projections)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _shown_bytes(tensor: torch.Tensor) -> int:
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride else 1
    return elements * tensor.itemsize


def _per_token(stores: list[torch.Tensor]) -> int:
    """Of one layer: keys and values [2, blocks, heads, block_tokens, head_dim], and their scales."""
    return sum(store.nbytes // (store.shape[1] * store.shape[3]) for store in stores)
