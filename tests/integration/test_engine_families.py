"""Every family and rotary scaling against logits of another implementation."""

import json
from pathlib import Path

import pytest
import torch

from llmprof.engine.engine import Engine
from llmprof.engine.open_workload import open_workload
from llmprof.engine.probe import NullProbe
from llmprof.engine.sampling import GreedySampler
from llmprof.engine.serving_workload import ServingWorkload
from tests.tiny_decoders import (
    DECODERS,
    LLAMA,
    PROMPT,
    TinyDecoder,
    load_engine,
    settings,
    write_decoder,
)

SWITCHES = [
    pytest.param(kind, layout, id=f"{kind}-{layout}")
    for kind in ("standard", "flash")
    for layout in ("none", "contiguous", "paged")
]


def last_logits(engine: Engine, prompts: torch.Tensor) -> torch.Tensor:
    batch = engine.open_batch(prompts, output_tokens=1)
    with torch.inference_mode():
        return engine.decoder.forward(batch.next_step(), batch.cache, batch.rotary, NullProbe())


@pytest.mark.parametrize(("kind", "layout"), SWITCHES)
@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_logits_and_greedy_tokens(
    decoder: TinyDecoder, kind: str, layout: str, tmp_path: Path
) -> None:
    path = write_decoder(tmp_path, decoder)
    engine = load_engine(settings(path, attention={"kind": kind}, kv_cache={"layout": layout}))
    logits = last_logits(engine, torch.tensor([PROMPT]))
    torch.testing.assert_close(logits[0], torch.tensor(decoder.logits), atol=3e-5, rtol=1e-5)
    generated = engine.generate(PROMPT, GreedySampler(), max_tokens=len(decoder.greedy_ids))
    assert generated.ids == decoder.greedy_ids
    assert generated.stopped == "max_tokens"


def test_a_sharded_checkpoint_is_the_same_model(tmp_path: Path) -> None:
    path = write_decoder(tmp_path, LLAMA, shards=3)
    logits = last_logits(load_engine(settings(path)), torch.tensor([PROMPT]))
    torch.testing.assert_close(logits[0], torch.tensor(LLAMA.logits), atol=3e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("kind", ["standard", "flash"])
def test_sixteen_bits_stay_close(kind: str, dtype: str, tmp_path: Path) -> None:
    path = write_decoder(tmp_path, LLAMA)
    engine = load_engine(settings(path, attention={"kind": kind}, weights={"dtype": dtype}))
    logits = last_logits(engine, torch.tensor([PROMPT])).float()
    # 8 (bf16) or 11 bits of mantissa, through some twenty roundings of numbers up to 4
    tolerance = {"bf16": 0.1, "fp16": 0.0125}[dtype]
    torch.testing.assert_close(logits[0], torch.tensor(LLAMA.logits), atol=tolerance, rtol=0)
    assert engine.dtype.name == dtype
    assert {tensor.stored_dtype for tensor in engine.manifest.tensors} == {dtype}


@pytest.mark.parametrize(("kind", "layout"), SWITCHES)
def test_a_batch_gives_what_each_sequence_gives_alone(
    kind: str, layout: str, tmp_path: Path
) -> None:
    decoder = next(decoder for decoder in DECODERS if decoder.name == "qwen3")
    path = write_decoder(tmp_path, decoder)
    engine = load_engine(settings(path, attention={"kind": kind}, kv_cache={"layout": layout}))
    prompts = torch.randint(48, (3, 12), generator=torch.Generator().manual_seed(5))
    batch = engine.open_batch(prompts, output_tokens=9)
    for _ in range(9):
        engine.step(batch, GreedySampler(), NullProbe())
    alone = [engine.generate(row.tolist(), GreedySampler(), max_tokens=9).ids for row in prompts]
    assert batch.tokens[:, 12:].tolist() == [list(ids) for ids in alone]
    assert len(set(alone)) == 3


def test_logits_of_all_rows_end_with_those_of_the_last(tmp_path: Path) -> None:
    engine = load_engine(settings(write_decoder(tmp_path, LLAMA)))
    prompts = torch.tensor([PROMPT, PROMPT[::-1]])
    batch = engine.open_batch(prompts, output_tokens=1)
    with torch.inference_mode():
        step = batch.next_step(all_logits=True)
        every = engine.decoder.forward(step, batch.cache, batch.rotary, NullProbe())
    last = last_logits(engine, prompts)
    torch.testing.assert_close(every.view(2, len(PROMPT), -1)[:, -1], last)


def test_generation_ends_at_a_stop_token(tmp_path: Path) -> None:
    engine = load_engine(settings(write_decoder(tmp_path, LLAMA)))
    stop = LLAMA.greedy_ids[2]
    generated = engine.generate(PROMPT, GreedySampler(), max_tokens=6, stop_ids=(stop,))
    assert generated.ids == LLAMA.greedy_ids[:3]
    assert generated.stopped == "eos"


@pytest.mark.parametrize("policy", ["static", "continuous"])
@pytest.mark.parametrize("layout", ["none", "contiguous", "paged"])
@pytest.mark.parametrize("kind", ["standard", "flash"])
def test_requests_in_shared_steps_give_the_known_tokens(
    kind: str, layout: str, policy: str, tmp_path: Path
) -> None:
    """Pieces of the known prompt beside other requests, and beside itself."""
    trace = tmp_path / "trace.jsonl"
    known = {"prompt_tokens": len(PROMPT), "output_tokens": 6}
    others = [{"prompt_tokens": length, "output_tokens": 9} for length in (3, 40, 11)]
    trace.write_text("\n".join(map(json.dumps, [known, *others, known])))
    config = settings(
        write_decoder(tmp_path, LLAMA),
        attention={"kind": kind},
        kv_cache={"layout": layout, "block_tokens": 8},
        batching={"policy": policy, "max_sequences": 3, "max_step_tokens": 48},
        workload={"kind": "trace", "file": str(trace)},
    )
    work = open_workload(load_engine(config), config)
    assert isinstance(work, ServingWorkload)
    for index in (0, 4):
        work.ids[index][: len(PROMPT)] = PROMPT
    work.run_round(NullProbe())
    for index in (0, 4):
        assert tuple(work.ids[index][len(PROMPT) :]) == LLAMA.greedy_ids


@pytest.mark.parametrize("kind", ["standard", "flash"])
@pytest.mark.parametrize(
    "name", ["mistral_window", "phi3_window", "phi3_partial", "glm4", "gemma2", "gemma3"]
)
def test_recorded_steps_give_the_known_tokens(name: str, kind: str, tmp_path: Path) -> None:
    """Windows, caps, two rotations and rotated parts of heads in a step that is replayed."""
    decoder = next(one for one in DECODERS if one.name == name)
    path = write_decoder(tmp_path, decoder)
    config = settings(path, attention={"kind": kind}, execution={"mode": "compiled"})
    tokens = len(decoder.greedy_ids)
    generated = load_engine(config).generate(PROMPT, GreedySampler(), max_tokens=tokens)
    assert generated.ids == decoder.greedy_ids
