"""What a token of context costs: its bytes, and the time of scanning them."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from llmprof.engine.kv_cache import KvPool
from tests.benchmarks.decode_attention import Cache, Shape
from tests.benchmarks.physics_cells import Cell, cell, in_turn, median_ms

CONTEXTS: Final = (512, 1024, 2048, 4096, 8192, 16384)
WITHIN: Final = 0.15
_ROOF: Final = "the attention kernel alone"
RANDOM_BF16: Final = {"source": "random", "dtype": "bf16"}


def context(rounds: int) -> bool:
    """The slope of decode time over context on the shape of Llama-3.2-1B."""
    print("context: Llama-3.2-1B shape, bf16, batch 1, synthetic context")
    held = cell("llama-3.2-1b", CONTEXTS[-1], weights=RANDOM_BF16)
    short = cell("llama-3.2-1b", 1024, weights=RANDOM_BF16)
    alone = Cache(Shape("1b", 8, 32, 64), 8192, "bf16", None, 1, 512 << 20)
    cells: dict[object, Callable[[], float]] = {
        tokens: lambda tokens=tokens: held.decode_s(tokens, 4)  # type: ignore[misc]
        for tokens in CONTEXTS
    }
    cells |= {"only 1024 held": lambda: short.decode_s(1024, 4), _ROOF: lambda: _pass_s(alone)}
    seconds = in_turn(rounds, cells)
    per_token = int(kv_token_bytes(16, 8, 64, 2))
    rates = [alone.num_bytes / one for one in seconds[_ROOF]]
    slope = _slope({tokens: statistics.median(seconds[tokens]) for tokens in CONTEXTS})
    predicted = per_token / statistics.median(rates)
    for tokens in CONTEXTS:
        print(f"  {tokens:6d} cached  {median_ms(seconds[tokens]):7.2f} ms per token")
    print(
        f"  16384 held, 1024 attended {median_ms(seconds[1024]):.2f} ms; 1024 held "
        f"{median_ms(seconds['only 1024 held']):.2f} ms: ratio "
        f"{_paired(seconds[1024], seconds['only 1024 held']):.3f}"
    )
    print(
        f"  {per_token} KV bytes per token over {statistics.median(rates) / 1e9:.1f} GB/s of {_ROOF} "
        f"({min(rates) / 1e9:.1f} to {max(rates) / 1e9:.1f}): predicted {1e6 * predicted:.2f} us per "
        f"token, measured {1e6 * slope:.2f}: {slope / predicted:.2f} of it"
    )
    return abs(slope / predicted - 1) <= WITHIN


def kv_token_bytes(layers: int, kv_heads: int, head_dim: int, number_bytes: float) -> float:
    """2 (K and V) x layers x KV heads x head size x bytes."""
    return 2 * layers * kv_heads * head_dim * number_bytes


BASE: Final[Mapping[str, Any]] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 2048,
    "num_hidden_layers": 8,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 4096,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
_LOW, _HIGH, _ROOM = 8192, 24576, 24576 + 64


def shape(rounds: int) -> bool:
    """One thing varied at a time: bytes of the real tensors, and the slope of a decode step."""
    print(
        f"shape: random weights, bf16, {BASE['num_hidden_layers']} layers; slope from {_LOW} to {_HIGH}"
    )
    variants: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
        "base: 8 KV heads of 64": ({}, {}, 1),
        "32 KV heads": ({"num_key_value_heads": 32}, {}, 1),
        "1 KV head": ({"num_key_value_heads": 1}, {}, 1),
        "head size 128": ({"head_dim": 128}, {}, 1),
        "16 layers": ({"num_hidden_layers": 16}, {}, 1),
        "int8 cache": ({}, {"kv_cache": {"dtype": "int8"}}, 1),
        "fp32 cache": ({}, {"weights": {"source": "random", "dtype": "fp32"}}, 1),
        "batch 4": ({}, {}, 4),
    }
    cells, ok = {}, True
    for name, (changes, groups, sequences) in variants.items():
        config = {**BASE, **changes}
        one = cell(config, _HIGH, sequences=sequences, **{"weights": RANDOM_BF16, **groups})
        expected = _expected_bytes(config, groups, sequences)
        ok &= _real_bytes(one) == expected
        cells[name] = (one, expected / _ROOM)
    timed = in_turn(
        rounds,
        {
            (name, tokens): lambda one=one, tokens=tokens: one.decode_s(tokens, 3)  # type: ignore[misc]
            for name, (one, _) in cells.items()
            for tokens in (_LOW, _HIGH)
        },
    )
    slopes = {
        name: [
            (high - low) / (_HIGH - _LOW)
            for low, high in zip(timed[name, _LOW], timed[name, _HIGH], strict=True)
        ]
        for name in cells
    }
    base_name = next(iter(cells))
    for name, (one, per_token) in cells.items():
        print(
            f"  {name:23} {per_token:7.0f} B per token, exact: {_real_bytes(one) == per_token * _ROOM}; "
            f"bytes x {per_token / cells[base_name][1]:5.2f}, slope x "
            f"{_paired(slopes[name], slopes[base_name]):5.2f}, "
            f"{per_token / statistics.median(slopes[name]) / 1e9:5.1f} GB/s"
        )
    return ok


def _expected_bytes(config: Mapping[str, Any], groups: Mapping[str, Any], sequences: int) -> float:
    number = {"fp32": 4.0}.get(groups.get("weights", {}).get("dtype"), 2.0)
    if groups.get("kv_cache", {}).get("dtype") == "int8":
        number = 1 + 4 / config["head_dim"]  # one float32 scale per vector
    token = kv_token_bytes(
        config["num_hidden_layers"], config["num_key_value_heads"], config["head_dim"], number
    )
    return token * sequences * _ROOM


def _real_bytes(one: Cell) -> int:
    """Of the cache's tensors."""
    cache = one.batch.cache
    assert isinstance(cache, KvPool)
    layers = range(one.engine.model.num_hidden_layers)
    scales = (cache.scales(layer) for layer in layers)
    return sum(cache.stored(layer).nbytes for layer in layers) + sum(
        one.nbytes for one in scales if one is not None
    )


@torch.inference_mode()
def _pass_s(alone: Cache) -> float:
    """All layers once, right after a pass that is not timed: the threads are awake, as in a step."""
    for _ in range(2):
        start = time.perf_counter()
        for layer in range(alone.layers):
            alone.ours(layer)
        seconds = time.perf_counter() - start
    return seconds


def _slope(seconds: Mapping[int, float]) -> float:
    """Least squares, seconds per token."""
    return statistics.linear_regression(list(seconds), list(seconds.values())).slope


def _paired(ours: list[float], base: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(ours, base, strict=True))
