"""Attention through block tables against softmax written out with torch, in Triton's interpreter."""

import pytest
import torch

from llmprof.engine.kernels.triton import attention_decode
from llmprof.engine.kernels.triton.attention_chunk import triton_chunk_attention
from llmprof.engine.kernels.triton.attention_decode import plan_decode, triton_decode_attention
from llmprof.engine.kv_cache.formats import quantize_int8, to_fp8

Case = tuple[int, int, int, int, int | None, float | None, float | None]
CASES: tuple[Case, ...] = (
    # heads, KV heads, head_dim, block_tokens, window, cap, scale
    (4, 2, 64, 16, None, None, None),
    (6, 2, 80, 8, 5, None, None),
    (3, 1, 256, 32, 40, 3.0, 0.1),
    (2, 2, 8, 400, None, 2.0, None),
)
STORED = ("same", "int8", "fp8")


class Cache:
    """Random keys and values, and where the blocks of each sequence lie among others."""

    def __init__(self, case: Case, stored: str, lengths: list[int], dtype: torch.dtype) -> None:
        _, kv_heads, head_dim, block_tokens, *_ = case
        generator = torch.Generator().manual_seed(head_dim)
        width = -(-max(lengths) // block_tokens)
        blocks = len(lengths) * width + 2
        shape = (2, blocks, kv_heads, block_tokens, head_dim)
        numbers = torch.randn(shape, generator=generator)
        self.scales: torch.Tensor | None = None
        if stored == "int8":
            self.store, self.scales = quantize_int8(numbers)
            self.numbers = self.store.double() * self.scales.double().unsqueeze(-1)
        else:
            self.store = to_fp8(numbers) if stored == "fp8" else numbers.to(dtype)
            self.numbers = self.store.double()
        order = torch.randperm(blocks, generator=generator)[: len(lengths) * width]
        self.tables = order.view(len(lengths), width).int()
        self.lengths = torch.tensor(lengths, dtype=torch.int32)

    def of(self, sequence: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [kv_heads, tokens, head_dim], in the order of their tokens."""
        part = self.numbers[:, self.tables[sequence].long()].permute(0, 2, 1, 3, 4).flatten(2, 3)
        keys, values = part[:, :, : int(self.lengths[sequence])]
        return keys, values


def expected(cache: Cache, query: torch.Tensor, sequence: int, case: Case) -> torch.Tensor:
    """Of the last tokens of a sequence; query [new, heads, head_dim]."""
    heads, kv_heads, head_dim, _, window, cap, scale = case
    keys, values = cache.of(sequence)
    tokens, new = keys.shape[1], query.shape[0]
    position = torch.arange(tokens - new, tokens).unsqueeze(1)
    hidden = torch.arange(tokens) > position
    if window is not None:
        hidden |= torch.arange(tokens) <= position - window
    out = []
    for head in range(heads):
        shared = head // (heads // kv_heads)
        scores = query[:, head].double() @ keys[shared].T * (scale or head_dim**-0.5)
        scores = scores if cap is None else cap * torch.tanh(scores / cap)
        out.append(scores.masked_fill(hidden, -torch.inf).softmax(1) @ values[shared])
    return torch.stack(out, 1).flatten(1)


@pytest.mark.parametrize(
    ("case", "stored", "multiprocessors"),
    [
        (case, stored, (1, 5, 40)[(row + column) % 3])
        for row, case in enumerate(CASES)
        for column, stored in enumerate(STORED)
    ],
)
def test_one_token_of_each_sequence(
    case: Case, stored: str, multiprocessors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole and split, a few or more than are joined at once; a context of one token, of a block, of
    one more, and a long one. Every two of case, storage and number of multiprocessors come together.
    """
    monkeypatch.setattr(attention_decode, "multiprocessors", lambda device: multiprocessors)
    block = min(case[3], 48)
    lengths = [1, block, block + 1, 330]
    cache = Cache(case, stored, lengths, torch.float32)
    fused = torch.randn(len(lengths), case[0] + 3, case[2])
    query, window, cap, scale = fused[:, : case[0]], *case[4:]
    out = triton_decode_attention(
        query,
        cache.store,
        cache.scales,
        cache.tables,
        cache.lengths,
        max(lengths),
        window,
        cap,
        scale,
    )
    rows = [expected(cache, query[i : i + 1], i, case) for i in range(len(lengths))]
    torch.testing.assert_close(out.double(), torch.cat(rows), rtol=0, atol=3e-6)


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("case", CASES)
def test_new_tokens_after_cached_ones(case: Case, stored: str) -> None:
    """37 new tokens: of a sequence that starts with them, and of one that has 50 before them."""
    lengths, new = [37, 87], 37
    cache = Cache(case, stored, lengths, torch.float32)
    query, window, cap, scale = torch.randn(2 * new, case[0], case[2]), *case[4:]
    out = triton_chunk_attention(
        query, cache.store, cache.scales, cache.tables, cache.lengths, window, cap, scale
    )
    rows = [expected(cache, query[i * new : (i + 1) * new], i, case) for i in range(2)]
    torch.testing.assert_close(out.double(), torch.cat(rows), rtol=0, atol=3e-6)


def test_16_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_decode, "multiprocessors", lambda device: 5)
    case = CASES[0]
    for stored in STORED:
        cache = Cache(case, stored, [300], torch.float16)
        query = torch.randn(1, case[0], case[2]).half()
        out = triton_decode_attention(
            query, cache.store, cache.scales, cache.tables, cache.lengths, 300
        )
        assert out.dtype is torch.float16
        torch.testing.assert_close(out.double(), expected(cache, query, 0, case), rtol=0, atol=2e-3)


@pytest.mark.parametrize("at_once", [3, 4])
def test_few_sequences_are_split_and_many_are_not(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among the programs that 132 multiprocessors run at once, so that none waits for another to end."""
    monkeypatch.setattr(attention_decode, "_AT_ONCE", at_once)
    assert plan_decode(1, 8, 128, 32_768, 132).splits == (64 if at_once == 4 else 49)
    assert plan_decode(256, 8, 128, 32_768, 132).splits == 1
    assert plan_decode(1, 8, 128, 100, 132).splits == 2
    assert plan_decode(1, 8, 128, 64, 132).splits == 1
    for sequences in range(1, 100):
        splits = plan_decode(sequences, 8, 128, 32_768, 132).splits
        assert splits == 1 or sequences * 8 * splits <= at_once * 132
