"""A KV budget that holds fewer sequences than are served: capacity is what limits, and is named."""

import random
from pathlib import Path

from llmprof.profiler import profile
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from tests.tiny_decoders import LLAMA, write_decoder
from tests.zoo.truth import Truth

STARVED = Truth("capacity: preempted", caveats=("preempted",))
_BLOCK_TOKENS = 8
_BLOCK_BYTES = 2 * 2 * 2 * 8 * 4 * _BLOCK_TOKENS
"""K and V, layers, KV heads, head_dim, fp32, tokens of a block."""
_SEQUENCES = 3


def starved_record(folder: Path, rng: random.Random, *, device: str = "cpu") -> RunRecord:
    """Sequences of 40 tokens (5 blocks each) in a cache that cannot hold three of them."""
    tokens = rng.randrange(18, 23)
    blocks = rng.randrange(7, 11)
    config = RunConfig.model_validate(
        {
            "model": str(write_decoder(folder / "tiny", LLAMA)),
            "device": device,
            "weights": {"dtype": "fp32"},
            "kv_cache": {
                "layout": "paged",
                "block_tokens": _BLOCK_TOKENS,
                "memory_bytes": blocks * _BLOCK_BYTES,
            },
            "batching": {
                "policy": "continuous",
                "max_sequences": _SEQUENCES,
                "max_step_tokens": 64,
            },
            "workload": {
                "kind": "trace",
                "requests": 6,
                "lengths": {
                    name: {"kind": "fixed", "mean": tokens, "low": 1, "high": 64}
                    for name in ("prompt", "output")
                },
            },
            "measure": {"warmup": 1, "rounds": 3},
        }
    )
    return profile(config)
