"""The demo model's greedy tokens, from another implementation, and the engine served with its prompts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from llmprof.engine.attention import make_attention
from llmprof.engine.engine import Engine
from llmprof.engine.execution import make_runner
from llmprof.engine.probe import NullProbe
from llmprof.engine.serving_workload import ServingWorkload
from llmprof.schema.settings import (
    AttentionKind,
    BatchingPolicy,
    ExecutionMode,
    KvCacheSettings,
    KvLayout,
)
from tests.tiny_decoders import settings

MODEL: Final = "smollm2-135m-instruct"
KV_BYTES_PER_TOKEN: Final = 2 * 23_040
"""30 layers, K and V, 3 heads of 64 numbers in fp32."""


@dataclass(frozen=True, slots=True)
class Known:
    prompt: str
    prompt_ids: list[int]
    greedy_ids: list[int]
    greedy_text: str
    steps: list[dict[str, list[float]]]
    """The most probable ids of each step with their raw logits."""


KNOWN: Final = tuple(
    Known(**prompt)
    for prompt in json.loads((Path(__file__).parent / "data" / "smollm2_greedy.json").read_text())[
        "prompts"
    ]
)


@dataclass(frozen=True, slots=True)
class Served:
    outputs: Sequence[list[int]]
    """Per known prompt."""
    preemptions: int


def switched(
    engine: Engine,
    kind: AttentionKind,
    layout: KvLayout,
    mode: ExecutionMode = ExecutionMode.EAGER,
) -> Engine:
    """The same weights under other switches."""
    return replace(
        engine,
        decoder=replace(engine.decoder, attention=make_attention(kind, "cpu")),
        kv_cache=KvCacheSettings(layout=layout),
        runner=make_runner(mode, device="cpu", layout=layout),
    )


def serve_known(engine: Engine, policy: BatchingPolicy, folder: Path, *, num_tokens: int) -> Served:
    """The known prompts in shared steps; a paged cache so small that one of them is preempted."""
    trace = folder / "trace.jsonl"
    lengths = [
        {"prompt_tokens": len(known.prompt_ids), "output_tokens": num_tokens} for known in KNOWN
    ]
    trace.write_text("\n".join(map(json.dumps, lengths)))
    kv: dict[str, object] = {"layout": engine.kv_cache.layout.value}
    if engine.kv_cache.layout is KvLayout.PAGED:
        longest = max(len(known.prompt_ids) for known in KNOWN) + num_tokens
        kv |= {"block_tokens": 8, "memory_bytes": KV_BYTES_PER_TOKEN * (2 * longest + 8)}
    chunked = engine.kv_cache.layout is not KvLayout.NONE
    config = settings(
        MODEL,
        weights={"dtype": "fp32"},
        kv_cache=kv,
        batching={
            "policy": policy.value,
            "max_sequences": len(KNOWN),
            "max_step_tokens": 16 if chunked else 256,
        },
        workload={"kind": "trace", "file": str(trace)},
    )
    work = ServingWorkload(replace(engine, kv_cache=config.kv_cache), config)
    for ids, known in zip(work.ids, KNOWN, strict=True):
        ids[: len(known.prompt_ids)] = known.prompt_ids
    work.run_round(NullProbe())
    outputs = [
        ids[len(known.prompt_ids) :].tolist() for ids, known in zip(work.ids, KNOWN, strict=True)
    ]
    requests = work.round_details().requests
    return Served(outputs, sum(request.preemptions for request in requests))
