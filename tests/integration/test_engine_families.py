"""Every family and rotary scaling against logits of another implementation."""

from pathlib import Path

import pytest
import torch

from llmprof.engine.engine import Engine
from llmprof.engine.probe import NullProbe
from llmprof.engine.sampling import GreedySampler
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
    for layout in ("none", "contiguous")
]


def last_logits(engine: Engine, prompts: torch.Tensor) -> torch.Tensor:
    batch = engine.open_batch(prompts, output_tokens=1)
    with torch.inference_mode():
        ids = batch.tokens[:, : prompts.shape[1]]
        return engine.decoder.forward(ids, batch.cache, batch.rotary, NullProbe())


@pytest.mark.parametrize(("kind", "layout"), SWITCHES)
@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_logits_and_greedy_tokens(
    decoder: TinyDecoder, kind: str, layout: str, tmp_path: Path
) -> None:
    path = write_decoder(tmp_path, decoder)
    engine = load_engine(settings(path, attention={"kind": kind}, kv_cache={"layout": layout}))
    logits = last_logits(engine, torch.tensor([PROMPT]))
    torch.testing.assert_close(logits[0], torch.tensor(decoder.logits), atol=3e-5, rtol=1e-5)
    generated = engine.generate(PROMPT, GreedySampler(), max_tokens=6)
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


@pytest.mark.parametrize("kind", ["standard", "flash"])
def test_a_prompt_in_two_parts_is_the_same_prompt(kind: str, tmp_path: Path) -> None:
    engine = load_engine(settings(write_decoder(tmp_path, LLAMA), attention={"kind": kind}))
    batch = engine.open_batch(torch.tensor([PROMPT]), output_tokens=1)
    with torch.inference_mode():
        for part in (batch.tokens[:, :17], batch.tokens[:, 17 : len(PROMPT)]):
            logits = engine.decoder.forward(part, batch.cache, batch.rotary, NullProbe())
    torch.testing.assert_close(logits[0], torch.tensor(LLAMA.logits), atol=3e-5, rtol=1e-5)


def test_logits_of_all_rows_end_with_those_of_the_last(tmp_path: Path) -> None:
    engine = load_engine(settings(write_decoder(tmp_path, LLAMA)))
    prompts = torch.tensor([PROMPT, PROMPT[::-1]])
    batch = engine.open_batch(prompts, output_tokens=1)
    with torch.inference_mode():
        every = engine.decoder.forward(
            batch.tokens[:, :-1], batch.cache, batch.rotary, NullProbe(), all_rows=True
        )
    last = last_logits(engine, prompts)
    torch.testing.assert_close(every.view(2, len(PROMPT), -1)[:, -1], last)


def test_generation_ends_at_a_stop_token(tmp_path: Path) -> None:
    engine = load_engine(settings(write_decoder(tmp_path, LLAMA)))
    stop = LLAMA.greedy_ids[2]
    generated = engine.generate(PROMPT, GreedySampler(), max_tokens=6, stop_ids=(stop,))
    assert generated.ids == LLAMA.greedy_ids[:3]
    assert generated.stopped == "eos"
