"""Attention of decoding tokens at every layout, KV dtype and kind that the engine has, as roofs."""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch

from llmprof.ceilings.pool import random_tensor
from llmprof.ceilings.timing import Rates, Stopwatch, repeat
from llmprof.ceilings.working_set import level_of_set, working_set_bytes
from llmprof.costs.options import kv_bytes_per_number
from llmprof.engine.attention import Attention, make_attention
from llmprof.engine.kv_cache import KvPool
from llmprof.engine.step_batch import SequenceRun, StepBatch
from llmprof.schema.ceilings import AttentionCeiling, BandwidthCeiling
from llmprof.schema.environment import Environment
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import AttentionKind
from llmprof.store.progress import Progress

Layout = Literal["contiguous", "paged"]

LAYOUTS: Final[tuple[Layout, ...]] = ("contiguous", "paged")
KV_DTYPES: Final = ("bf16", "int8", "fp8")
KINDS: Final[tuple[Literal["flash", "standard"], ...]] = ("flash", "standard")
CONTEXTS: Final = (512, 4096, 16384)
BLOCK_TOKENS: Final = 16
HEADS: Final = 32
KV_HEADS: Final = 8
HEAD_DIM: Final = 128
"""Of a Llama 3 of 8 billion parameters."""
_COMPUTE_DTYPE: Final = torch.bfloat16
_CALL_S: Final = 0.002
_MOST_LAYERS_PER_CALL: Final = 128
_FEWEST_REPEATS: Final = 3
_SCALE: Final = 0.01
_SEED: Final = 7


@dataclass(frozen=True, slots=True)
class Case:
    """One cell of the table."""

    layout: Layout
    kv_dtype: str
    context_tokens: int
    """Attended to, the new token included."""

    @property
    def block_tokens(self) -> int:
        return BLOCK_TOKENS if self.layout == "paged" else self.context_tokens

    @property
    def blocks(self) -> int:
        return self.context_tokens // self.block_tokens

    @property
    def layer_bytes(self) -> int:
        """Keys and values of one layer as stored, scales included."""
        number = kv_bytes_per_number(self.kv_dtype, HEAD_DIM)
        return round(2 * KV_HEADS * HEAD_DIM * number * self.context_tokens)

    def layers(self, set_bytes: int) -> int:
        """So many that they fill the working set, two at least."""
        return max(2, set_bytes // self.layer_bytes)


def measure_attention(
    environment: Environment,
    device: str,
    bandwidth: tuple[BandwidthCeiling, ...],
    *,
    budget_s: float,
    progress: Progress,
) -> tuple[AttentionCeiling, ...]:
    """Bytes/s of one sequence's cache in about `budget_s`, and some seconds to fill the caches.

    Each case has a cache of so many layers that they fill the working set, and attention goes
    through them as a decode step does, so that every layer is cold when its turn comes again.
    """
    cases = [Case(*one) for one in itertools.product(LAYOUTS, KV_DTYPES, CONTEXTS)]
    share_s = budget_s / (len(cases) * len(KINDS))
    set_bytes = working_set_bytes(environment, device)
    level = level_of_set(set_bytes, environment, bandwidth)
    ceilings: list[AttentionCeiling] = []
    for done, case in enumerate(cases):
        progress.update("attention", done, len(cases))
        ceilings += _of_case(case, device, set_bytes, level, share_s)
    progress.update("attention", len(cases), len(cases))
    return tuple(ceilings)


def _of_case(
    case: Case, device: str, set_bytes: int, level: str, share_s: float
) -> Iterator[AttentionCeiling]:
    layers = case.layers(set_bytes)
    cache = filled_cache(case, layers, device)
    for kind in KINDS:
        attention = make_attention(AttentionKind(kind), device)
        probe = AttentionProbe(case, cache, layers, attention, device)
        stopwatch = Stopwatch(device)
        once_s = probe.fit_call(stopwatch)
        rates = repeat(
            stopwatch,
            probe,
            probe.bytes_per_call,
            budget_s=share_s,
            at_least=_FEWEST_REPEATS if once_s < share_s else 1,
        )
        yield _ceiling(case, kind, rates, level, device, probe.kernel)


class AttentionProbe:
    """A call attends in the next few layers of a cache, round and round."""

    def __init__(
        self, case: Case, cache: KvPool, layers: int, attention: Attention, device: str
    ) -> None:
        self._cache = cache
        self._attention = attention
        self._step = one_token_step(case, device)
        self._query = random_tensor((1, HEADS, HEAD_DIM), device, _COMPUTE_DTYPE)
        self._layers = layers
        self._layer_bytes = case.layer_bytes
        self._next = 0
        self.layers_per_call = 1
        attention.begin_step(self._step)
        cache.begin_step(self._step)

    @property
    def kernel(self) -> str:
        decode = self._attention.decode_kernel
        return self._attention.kernel if decode is None else decode.name

    @property
    def bytes_per_call(self) -> int:
        return self.layers_per_call * self._layer_bytes

    def fit_call(self, stopwatch: Stopwatch) -> float:
        """Warm up, make a call about 2 ms long, and return the seconds of one layer."""
        self()
        once_s = min(stopwatch.time_s(self), stopwatch.time_s(self))
        wanted = max(1, round(_CALL_S / once_s))
        self.layers_per_call = min(wanted, self._layers, _MOST_LAYERS_PER_CALL)
        return once_s

    def __call__(self) -> None:
        for _ in range(self.layers_per_call):
            self._attention(self._query, self._cache, self._next, self._step)
            self._next = (self._next + 1) % self._layers


def filled_cache(case: Case, layers: int, device: str) -> KvPool:
    """A store without zeros: pages that nobody wrote are all one page, and in cache."""
    cache = KvPool(
        _model(layers),
        num_blocks=case.blocks,
        block_tokens=case.block_tokens,
        kv_dtype=case.kv_dtype,
        dtype=_COMPUTE_DTYPE,
        device=device,
    )
    first = cache.stored(0)
    noise = random_tensor((first.numel(),), device, _COMPUTE_DTYPE).view(first.shape)
    numbers = (noise * 127 / noise.abs().max()) if first.dtype is torch.int8 else noise
    numbers = numbers.to(first.dtype)
    for layer in range(layers):
        cache.stored(layer).copy_(numbers)
        scales = cache.scales(layer)
        if scales is not None:
            scales.fill_(_SCALE)
    return cache


def one_token_step(case: Case, device: str) -> StepBatch:
    """One sequence that attends to the whole context; paged blocks are in no order."""
    last = case.context_tokens - 1
    generator = torch.Generator().manual_seed(_SEED)
    table = torch.randperm(case.blocks, generator=generator)
    slot = int(table[-1]) * case.block_tokens + last % case.block_tokens
    numbers = functools.partial(torch.tensor, dtype=torch.int32, device=device)
    first_block = 0 if case.layout == "contiguous" else None
    return StepBatch(
        ids=torch.zeros(1, dtype=torch.int64, device=device),
        positions=numbers([last]),
        slots=numbers([slot]),
        block_tables=numbers([table.tolist()]),
        context_lens=numbers([case.context_tokens]),
        runs=(SequenceRun(0, 0, 1, 1, last, same_context=True, first_block=first_block),),
    )


def _model(layers: int) -> ModelConfig:
    """What a cache needs to know; the other sizes are those of no model."""
    sizes: dict[str, Any] = {"hidden_size": HEADS * HEAD_DIM, "intermediate_size": 1}
    return ModelConfig(
        name="attention ceiling",
        model_type="llama",
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        vocab_size=1,
        max_position_embeddings=max(CONTEXTS),
        **sizes,
    )


def _ceiling(
    case: Case,
    kind: Literal["flash", "standard"],
    rates: Rates,
    level: str,
    device: str,
    kernel: str,
) -> AttentionCeiling:
    return AttentionCeiling(
        layout=case.layout,
        kv_dtype=case.kv_dtype,
        kind=kind,
        context_tokens=case.context_tokens,
        level=level,
        sequences=1,
        heads=HEADS,
        kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        block_tokens=case.block_tokens if case.layout == "paged" else None,
        bytes_per_s=rates.ceiling(device),
        median_bytes_per_s=rates.median,
        spread=rates.spread,
        kernel=kernel,
    )
