"""The demo model against another implementation: token by token, for every switch."""

from pathlib import Path

import pytest
import torch

from llmprof.architectures.source import resolve_model
from llmprof.engine.engine import Engine
from llmprof.engine.probe import NullProbe
from llmprof.engine.sampling import GreedySampler
from llmprof.engine.tokenizer import Tokenizer
from llmprof.engine.tokenizer_source import load_tokenizer
from llmprof.schema.settings import AttentionKind, BatchingPolicy, ExecutionMode, KvLayout
from tests.known_tokens import KNOWN, MODEL, Known, serve_known, switched
from tests.tiny_decoders import load_engine, settings

pytestmark = pytest.mark.model

prompts = pytest.mark.parametrize("known", KNOWN, ids=["raw-1", "raw-2", "raw-3"])
attention_kinds = pytest.mark.parametrize("kind", AttentionKind)


@pytest.fixture(scope="module")
def fp32_engine() -> Engine:
    return load_engine(settings(MODEL, weights={"dtype": "fp32"}))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(resolve_model(MODEL))


@prompts
def test_text_to_ids_and_back(known: Known, tokenizer: Tokenizer) -> None:
    assert tokenizer.encode(known.prompt) == known.prompt_ids
    assert tokenizer.decode(known.prompt_ids) == known.prompt
    assert tokenizer.decode(known.greedy_ids) == known.greedy_text


@pytest.mark.parametrize(
    ("prompt", "kind", "layout", "num_tokens"),
    [
        (0, AttentionKind.FLASH, KvLayout.CONTIGUOUS, 48),
        (1, AttentionKind.STANDARD, KvLayout.CONTIGUOUS, 12),
        (2, AttentionKind.FLASH, KvLayout.PAGED, 20),
        (0, AttentionKind.STANDARD, KvLayout.PAGED, 12),
        (1, AttentionKind.FLASH, KvLayout.NONE, 6),
        (2, AttentionKind.STANDARD, KvLayout.NONE, 6),
    ],
)
def test_greedy_ids(
    prompt: int, kind: AttentionKind, layout: KvLayout, num_tokens: int, fp32_engine: Engine
) -> None:
    """In full where a step is cheap; the next test has every step of every switch and prompt."""
    known = KNOWN[prompt]
    engine = switched(fp32_engine, kind, layout)
    generated = engine.generate(known.prompt_ids, GreedySampler(), max_tokens=num_tokens)
    assert list(generated.ids) == known.greedy_ids[:num_tokens]


@prompts
@attention_kinds
@pytest.mark.parametrize("layout", KvLayout)
def test_top_logits_of_every_step(
    known: Known, kind: AttentionKind, layout: KvLayout, fp32_engine: Engine
) -> None:
    engine = switched(fp32_engine, kind, layout)
    text = torch.tensor([known.prompt_ids + known.greedy_ids[:-1]])
    batch = engine.open_batch(text, output_tokens=1)
    with torch.inference_mode():
        whole = batch.next_step(all_logits=True)
        logits = engine.decoder.forward(whole, batch.cache, batch.rotary, NullProbe())
    for row, step in zip(logits[len(known.prompt_ids) - 1 :], known.steps, strict=True):
        expected = torch.tensor(step["logits"])
        torch.testing.assert_close(row.topk(4).values, expected, atol=2e-3, rtol=0)
        assert int(row.argmax()) == step["ids"][0]


def test_packed_weights_become_bf16(fp32_engine: Engine) -> None:
    engine = load_engine(settings(MODEL))
    assert engine.dtype.name == "bf16"
    assert engine.dtype.dequantized_from == ("q4_1", "q8_0")
    assert engine.manifest.parameters == 134_515_008
    assert engine.manifest.stored_bytes == 2 * 134_515_008
    assert fp32_engine.manifest.stored_bytes == 4 * 134_515_008
    generated = engine.generate(KNOWN[0].prompt_ids, GreedySampler(), max_tokens=2)
    assert list(generated.ids) == KNOWN[0].greedy_ids[:2]


@pytest.mark.parametrize(
    ("kind", "layout", "policy"),
    [
        (AttentionKind.FLASH, KvLayout.CONTIGUOUS, BatchingPolicy.STATIC),
        (AttentionKind.FLASH, KvLayout.PAGED, BatchingPolicy.CONTINUOUS),
        (AttentionKind.STANDARD, KvLayout.CONTIGUOUS, BatchingPolicy.CONTINUOUS),
        (AttentionKind.STANDARD, KvLayout.PAGED, BatchingPolicy.STATIC),
    ],
)
def test_requests_in_shared_steps(
    kind: AttentionKind,
    layout: KvLayout,
    policy: BatchingPolicy,
    fp32_engine: Engine,
    tmp_path: Path,
) -> None:
    """Every two settings together; `python -m tests.benchmarks.same_tokens` has all and every token."""
    served = serve_known(switched(fp32_engine, kind, layout), policy, tmp_path, num_tokens=24)
    assert served.outputs == [known.greedy_ids[:24] for known in KNOWN]
    if layout is KvLayout.PAGED and policy is BatchingPolicy.CONTINUOUS:
        assert served.preemptions > 0


@pytest.mark.parametrize("layout", [KvLayout.CONTIGUOUS, KvLayout.PAGED])
def test_replayed_steps(layout: KvLayout, fp32_engine: Engine) -> None:
    engine = switched(fp32_engine, AttentionKind.FLASH, layout, ExecutionMode.COMPILED)
    generated = engine.generate(KNOWN[0].prompt_ids, GreedySampler(), max_tokens=24)
    assert list(generated.ids) == KNOWN[0].greedy_ids[:24]


def test_replayed_steps_serve_requests(fp32_engine: Engine, tmp_path: Path) -> None:
    engine = switched(fp32_engine, AttentionKind.FLASH, KvLayout.PAGED, ExecutionMode.COMPILED)
    served = serve_known(engine, BatchingPolicy.CONTINUOUS, tmp_path, num_tokens=12)
    assert served.outputs == [known.greedy_ids[:12] for known in KNOWN]
