import math

import pytest
import torch

from llmprof.costs.cache_access import kv_access
from llmprof.engine.attention import Attention, FlashAttention, StandardAttention
from llmprof.engine.attention.decode_kernels import find_decode_kernel
from llmprof.engine.attention.flash import many_tokens_folded, many_tokens_native
from llmprof.engine.attention.prefill_kernels import find_prefill_kernel
from llmprof.engine.kv_cache import KvCache, KvPool, NoCache
from llmprof.engine.step_batch import StepBatch
from llmprof.schema.cost import KvAccess, KvRead
from tests.published import decoder
from tests.step_batches import Scattered, Shape, side_by_side
from tests.tiny_decoders import settings

HEADS, KV_HEADS, HEAD_DIM = 6, 2, 8
MODEL = decoder("small", 1, 48, 48, HEADS, KV_HEADS, 50)
GATHERED, IN_PLACE = KvRead.GATHERED, KvRead.IN_PLACE
attentions = pytest.mark.parametrize(
    "attention",
    [StandardAttention(), FlashAttention(), FlashAttention(find_decode_kernel("cpu"))],
    ids=["standard", "flash", "flash-own-kernel"],
)


def by_hand(query: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
    """One head and one token at a time, in Python's own floats.

    `query` [new, heads, head_dim] are the last tokens of `history` [tokens, 2, kv_heads, head_dim].
    """
    new, heads, dim = query.shape
    past, group = history.shape[0] - new, heads // history.shape[2]
    out = torch.zeros(new, heads, dim)
    for t in range(new):
        for h in range(heads):
            k, v = history[: past + t + 1, :, h // group].unbind(1)
            dots = [float(row @ query[t, h]) / math.sqrt(dim) for row in k]
            weights = [math.exp(dot - max(dots)) for dot in dots]
            for d in range(dim):
                mixed = sum(w * float(row[d]) for w, row in zip(weights, v, strict=True))
                out[t, h, d] = mixed / sum(weights)
    return out.view(new, heads * dim)


class Conversation:
    """Sequences whose every token is remembered beside the cache."""

    def __init__(self, cache: KvCache, num_sequences: int, seed: int) -> None:
        self.cache = cache
        self.history = [torch.empty(0, 2, KV_HEADS, HEAD_DIM) for _ in range(num_sequences)]
        self.generator = torch.Generator().manual_seed(seed)

    def check(self, attention: Attention, step: StepBatch, new: list[int]) -> None:
        """Append random tokens, attend, and compare every sequence with the loops."""
        fused = torch.randn(step.num_rows, HEADS + 2 * KV_HEADS, HEAD_DIM, generator=self.generator)
        query, keys_values = fused[:, :HEADS], fused[:, HEADS:].view(-1, 2, KV_HEADS, HEAD_DIM)
        self.cache.begin_step(step)
        attention.begin_step(step)
        self.cache.append(0, keys_values, step)
        found = attention(query, self.cache, 0, step)
        for index, (rows, kv, out) in enumerate(
            zip(*(torch.split(part, new) for part in (query, keys_values, found)), strict=True)
        ):
            self.history[index] = torch.cat((self.history[index], kv))
            expected = by_hand(rows, self.history[index])
            torch.testing.assert_close(out, expected, atol=2e-6, rtol=2e-5)


def a_pool(num_blocks: int, block_tokens: int) -> KvPool:
    return KvPool(
        MODEL,
        num_blocks=num_blocks,
        block_tokens=block_tokens,
        kv_dtype="fp32",
        dtype=torch.float32,
        device="cpu",
    )


@attentions
@pytest.mark.parametrize("block_tokens", [4, 32])
def test_ragged_steps_through_block_tables(attention: Attention, block_tokens: int) -> None:
    """Prompts of several lengths, a later piece beside decodes, decodes of several contexts."""
    scattered = Scattered.of(3, 20, block_tokens, seed=7)
    talk = Conversation(a_pool(scattered.num_blocks, block_tokens), 3, seed=1)
    steps: list[list[Shape]] = [
        [(0, 5), (0, 1), (0, 6)],
        [(5, 1), (1, 3), (6, 7)],
        [(6, 1), (4, 1), (13, 1)],
        [(7, 1), (5, 1), (14, 2)],
    ]
    for shapes in steps:
        talk.check(attention, scattered.step(shapes), [new for _, new in shapes])


@attentions
@pytest.mark.parametrize("num_sequences", [1, 3])
def test_static_steps_side_by_side(attention: Attention, num_sequences: int) -> None:
    talk = Conversation(a_pool(num_sequences, 16), num_sequences, seed=2)
    for cached, new in ((0, 5), (5, 1), (6, 4), (10, 1)):
        step = side_by_side(num_sequences, cached, new, max_tokens=16)
        talk.check(attention, step, [new] * num_sequences)


@attentions
def test_without_a_cache(attention: Attention) -> None:
    scattered = Scattered.of(3, 9, 16, seed=0)
    talk = Conversation(NoCache(), 3, seed=3)
    talk.check(attention, scattered.step([(0, 1), (0, 9), (0, 4)]), [1, 9, 4])


WIDE = decoder("wide", 1, 192, 48, 6, 2, 50, head_dim=32)
OWN = FlashAttention(find_decode_kernel("cpu"), find_prefill_kernel("cpu"))


def attended_in_bf16(attention: Attention, cache: KvCache, steps: list[StepBatch]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    outputs = []
    for step in steps:
        fused = torch.randn(step.num_rows, 6 + 2 * 2, 32, generator=generator).bfloat16()
        cache.begin_step(step)
        attention.begin_step(step)
        cache.append(0, fused[:, 6:].view(-1, 2, 2, 32), step)
        outputs.append(attention(fused[:, :6], cache, 0, step))
    return torch.cat(outputs).float()


@pytest.mark.parametrize("layout", ["none", "contiguous", "paged"])
def test_prompts_in_bf16_by_our_kernel_and_by_torchs(layout: str) -> None:
    """Whole prompts, then pieces after 70 tokens; the short ones are torch's on both sides."""
    if layout == "contiguous":
        steps = [side_by_side(2, 0, 70, 150), side_by_side(2, 70, 45, 150)]
    else:
        scattered = Scattered.of(3, 150, 16, seed=3)
        steps = [scattered.step([(0, 33), (0, 5), (0, 70)])]
        if layout == "paged":
            steps.append(scattered.step([(33, 1), (5, 64), (70, 40)]))

    def cache() -> KvCache:
        if layout == "none":
            return NoCache()
        blocks, tokens = (2, 150) if layout == "contiguous" else (scattered.num_blocks, 16)
        return KvPool(
            WIDE,
            num_blocks=blocks,
            block_tokens=tokens,
            kv_dtype="bf16",
            dtype=torch.bfloat16,
            device="cpu",
        )

    ours = attended_in_bf16(OWN, cache(), steps)
    torchs = attended_in_bf16(FlashAttention(), cache(), steps)
    torch.testing.assert_close(ours, torchs, atol=2e-2, rtol=0)


@pytest.mark.parametrize("past", [0, 3])
def test_both_ways_of_grouping_agree(past: int) -> None:
    generator = torch.Generator().manual_seed(past)
    queries = torch.randn(2, KV_HEADS, 3, 4, HEAD_DIM, generator=generator)
    keys, values = torch.randn(2, 2, KV_HEADS, past + 4, HEAD_DIM, generator=generator)
    seen = torch.ones(4, past + 4, dtype=torch.bool).tril_(past)
    causal = {"attn_mask": seen} if past else {"is_causal": True}
    folded = many_tokens_folded(queries, keys, values, causal)
    native = many_tokens_native(queries, keys, values, causal)
    torch.testing.assert_close(folded, native)


@pytest.mark.parametrize(
    ("kv", "batching", "decode", "chunk"),
    [
        ({"layout": "none"}, {}, IN_PLACE, IN_PLACE),
        ({}, {}, IN_PLACE, IN_PLACE),
        ({}, {"policy": "continuous"}, GATHERED, IN_PLACE),
        ({"dtype": "int8"}, {}, GATHERED, GATHERED),
        ({"layout": "paged"}, {}, GATHERED, GATHERED),
    ],
)
def test_where_a_copy_is_gathered(
    kv: dict[str, str], batching: dict[str, str], decode: KvRead, chunk: KvRead
) -> None:
    config = settings(kv_cache=kv, batching=batching)
    assert kv_access(config, decode_kernel=False) == KvAccess(decode=decode, chunk=chunk)
    assert kv_access(config, decode_kernel=True) == KvAccess(decode=IN_PLACE, chunk=chunk)
