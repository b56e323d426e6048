"""Decode attention: GB/s of KV cache against the live read ceiling and torch's kernels, in turn.

    python tests/benchmarks/decode_attention.py [--contexts 512 2048 8192] [--mib 1024]
        [--rounds 10] [--threads N]

All layers of a cache are read in turn, --mib in all: more than the last-level cache for the ceiling of
DRAM, less for that of the cache.

Passes (exit code 0) where the median over rounds of ours / ceiling is at least 0.8 for every bf16
cache of 2048 tokens and more.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch.nn import functional

from llmprof.ceilings.live import LiveCeilings
from llmprof.engine.kernels.attention_decode import decode_attention
from llmprof.engine.kernels.memory import huge_empty
from llmprof.engine.workload import CeilingNeeds
from llmprof.instruments.contention import ContentionMeter
from llmprof.instruments.snapshot import resolve_threads, snapshot

WANTED: Final = 0.8
JUDGED_FROM: Final = 2048
Attend = Callable[[int], torch.Tensor]
"""Attention in one layer."""


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    kv_heads: int
    heads: int
    head_dim: int


SHAPES: Final = (
    Shape("SmolLM2-135M", 3, 9, 64),
    Shape("Llama-3.2-1B", 8, 32, 64),
    Shape("Llama-3.1-8B", 8, 32, 128),
)
STORED: Final = {"bf16": torch.bfloat16, "int8": torch.int8, "fp8": torch.float8_e4m3fn}


class Cache:
    """Layers of random keys and values for some sequences of one length."""

    def __init__(
        self,
        shape: Shape,
        context: int,
        stored: str,
        block_tokens: int | None,
        sequences: int,
        num_bytes: int,
    ) -> None:
        size = block_tokens or context
        blocks = sequences * context // size
        vectors = (2, blocks, shape.kv_heads, size)
        dtype = STORED[stored]
        layer_bytes = 2 * sequences * context * shape.kv_heads * shape.head_dim * dtype.itemsize
        self.layers = max(2, num_bytes // layer_bytes)
        self.store = huge_empty((self.layers, *vectors, shape.head_dim), dtype)
        for layer in self.store:
            noise = torch.randn(*vectors, shape.head_dim)
            layer.copy_((noise * 30).clamp_(-127, 127) if stored == "int8" else noise)
        self.scales = torch.rand(self.layers, *vectors) / 30 if stored == "int8" else None
        self.tables = torch.randperm(blocks).view(sequences, -1).to(torch.int32)
        self.lengths = torch.full((sequences,), context, dtype=torch.int32)
        self.query = torch.randn(sequences, shape.heads, shape.head_dim).to(torch.bfloat16)
        self.context = context
        self.num_bytes = self.store.nbytes
        if self.scales is not None:
            self.num_bytes += self.scales.nbytes

    def ours(self, layer: int) -> torch.Tensor:
        scales = None if self.scales is None else self.scales[layer]
        return decode_attention(
            self.query, self.store[layer], scales, self.tables, self.lengths, self.context
        )

    def folded(self, layer: int) -> torch.Tensor:
        """torch on views: the query heads of a KV head are rows of one product."""
        keys, values = self.store[layer]
        rows = self.query.unflatten(1, (keys.shape[1], -1))  # type: ignore[no-untyped-call]
        return functional.scaled_dot_product_attention(rows, keys, values)

    def gathered(self, layer: int) -> torch.Tensor:
        """torch on a copy of the blocks in order."""
        sequences = len(self.tables)
        blocks = self.store[layer].index_select(1, self.tables.flatten().long())
        kind, _, kv_heads, _, head_dim = blocks.shape
        blocks = blocks.view(kind, sequences, -1, kv_heads, blocks.shape[3], head_dim)
        keys, values = blocks.transpose(2, 3).flatten(3, 4)
        rows = self.query.view(sequences, kv_heads, -1, head_dim)
        return functional.scaled_dot_product_attention(rows, keys, values)


def main() -> int:
    arguments = _arguments()
    threads = resolve_threads(arguments.threads)
    torch.set_num_threads(threads)
    num_bytes = arguments.mib << 20
    live = LiveCeilings(CeilingNeeds(num_bytes, "bf16", None, ()), snapshot("cpu", threads))
    meter = ContentionMeter(threads)
    print(f"{threads} threads; GB/s of keys and values as stored, best round / ceiling by median")
    passed = True
    for shape in SHAPES:
        for context in arguments.contexts:
            for stored, block_tokens, sequences in (
                ("bf16", None, 1),
                ("bf16", 16, 1),
                ("bf16", 16, 8),
                ("int8", 16, 1),
                ("fp8", 16, 1),
            ):
                cache = Cache(shape, context, stored, block_tokens, sequences, num_bytes)
                ratio = _compare(
                    cache, live, arguments.rounds, _label(shape, cache, stored, block_tokens)
                )
                judged = stored == "bf16" and context >= JUDGED_FROM
                passed = passed and (ratio >= WANTED or not judged)
    waited = meter.stop().run_queue_fraction
    print(f"waited for a core: {'unknown' if waited is None else f'{waited:.1%}'}")
    return 0 if passed else 1


def _label(shape: Shape, cache: Cache, stored: str, block_tokens: int | None) -> str:
    layout = "contiguous" if block_tokens is None else f"blocks of {block_tokens}"
    return f"{shape.name:13s} {cache.context:6d} x {len(cache.lengths)} {stored:4s} {layout:12s}"


@torch.inference_mode()
def _compare(cache: Cache, live: LiveCeilings, rounds: int, label: str) -> float:
    """Print one line; the median over rounds of ours / ceiling."""
    rivals: dict[str, Attend] = {"ours": cache.ours}
    if cache.scales is None and cache.store.dtype is torch.bfloat16:
        rivals["sdpa"] = cache.folded if cache.tables.shape[1] == 1 else cache.gathered
    rates: dict[str, list[float]] = {name: [] for name in rivals}
    ratios = []
    for _ in range(rounds):
        for name, attend in rivals.items():
            rates[name].append(cache.num_bytes / _pass_s(attend, cache.layers))
        ratios.append(rates["ours"][-1] / live.read(0.0).read_bytes_per_s)
    ratio = statistics.median(ratios)
    best = "  ".join(f"{name} {max(of_name) / 1e9:5.1f}" for name, of_name in rates.items())
    print(f"  {label} {best:24s} {ratio:5.2f}", flush=True)
    return ratio


def _pass_s(attend: Attend, layers: int) -> float:
    start = time.perf_counter()
    for layer in range(layers):
        attend(layer)
    return time.perf_counter() - start


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--contexts", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
