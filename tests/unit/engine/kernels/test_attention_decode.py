"""Decode attention against float64, over layouts, stored dtypes and ways to cut it into shares."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmprof.engine.kernels import launch
from llmprof.engine.kernels.attention_decode import decode_attention
from llmprof.engine.kernels.kv_append import kv_append_

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}


@dataclass(frozen=True, slots=True)
class Case:
    kv_heads: int
    group: int
    head_dim: int
    block_tokens: int | None
    """None for one block per sequence."""
    lengths: tuple[int, ...]
    window: int | None = None
    cap: float | None = None
    scale: float | None = None


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Five, however small the work is."""
    monkeypatch.setattr(launch, "_SHARED_FROM_BYTES", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(5)
    yield
    torch.set_num_threads(before)


class Filled:
    """A cache filled with normal noise through shuffled block tables, and queries beside it."""

    def __init__(self, case: Case, dtype: torch.dtype, stored: torch.dtype) -> None:
        self.case = case
        generator = torch.Generator().manual_seed(sum(case.lengths))
        sequences, longest = len(case.lengths), max(case.lengths)
        size = case.block_tokens or longest + 3
        width = 1 if case.block_tokens is None else -(-longest // size) + 1
        blocks = sequences * width
        self.tables = torch.randperm(blocks, generator=generator).view(sequences, width).int()
        self.lengths = torch.tensor(case.lengths, dtype=torch.int32)
        shape = (2, blocks, case.kv_heads, size, case.head_dim)
        self.store = torch.zeros(shape).to(stored)
        self.scales = torch.zeros(shape[:-1]) if stored is torch.int8 else None
        rows = (sequences * longest, 2, case.kv_heads, case.head_dim)
        noise = torch.randn(rows, generator=generator).to(dtype)
        position = torch.arange(longest)
        self.slots = self.tables.long()[:, position // size] * size + position % size
        kv_append_(noise, self.store, self.scales, self.slots.flatten().int())
        heads = case.kv_heads * case.group
        fused = torch.randn((sequences, heads + 2, case.head_dim), generator=generator) * 1.5
        self.query = fused.to(dtype)[:, :heads]

    def attended(self) -> torch.Tensor:
        longest, case = int(self.lengths.max()), self.case
        cache = self.store, self.scales, self.tables, self.lengths
        return decode_attention(self.query, *cache, longest, case.window, case.cap, case.scale)

    def expected(self) -> torch.Tensor:
        """Softmax over the scaled products, sequence by sequence and head by head."""
        numbers = self.store.double()
        if self.scales is not None:
            numbers = numbers * self.scales.double().unsqueeze(-1)
        tokens = numbers.transpose(2, 3).flatten(1, 2)
        heads, head_dim = self.query.shape[1:]
        rows = []
        for query, slots, length in zip(self.query, self.slots, self.lengths, strict=True):
            first = max(0, int(length) - (self.case.window or int(length)))
            keys, values = tokens[:, slots[first : int(length)]].repeat_interleave(
                heads // tokens.shape[2], dim=2
            )
            scores = torch.einsum("hd,thd->ht", query.double(), keys)
            scores *= self.case.scale or 1 / math.sqrt(head_dim)
            if self.case.cap is not None:
                scores = self.case.cap * (scores / self.case.cap).tanh()
            rows.append(torch.einsum("ht,thd->hd", scores.softmax(-1), values).flatten())
        return torch.stack(rows)


def check(case: Case, dtype: torch.dtype, stored: torch.dtype) -> None:
    filled = Filled(case, dtype, stored)
    torch.testing.assert_close(
        filled.attended().double(), filled.expected(), atol=TOLERANCE[dtype], rtol=0
    )


CASES = [
    Case(3, 3, 64, None, (513,)),
    Case(3, 3, 64, 16, (513, 1, 70)),
    Case(1, 8, 64, 8, (300, 900, 5)),
    Case(8, 1, 32, 128, (200, 100)),
    Case(2, 7, 80, 32, (65, 64, 63)),
    Case(1, 32, 64, 16, (100,)),  # more query heads than a vector has lanes
    Case(2, 2, 7, None, (5, 90)),  # no vector divides head_dim
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32(case: Case) -> None:
    check(case, torch.float32, torch.float32)


@pytest.mark.parametrize(
    ("dtype", "stored", "case"),
    [
        (torch.bfloat16, torch.bfloat16, CASES[1]),
        (torch.bfloat16, torch.bfloat16, CASES[6]),
        (torch.float16, torch.float16, CASES[4]),
        (torch.bfloat16, torch.int8, CASES[0]),
        (torch.float32, torch.int8, CASES[4]),
        (torch.bfloat16, torch.float8_e4m3fn, CASES[1]),
    ],
    ids=str,
)
def test_stored_dtypes(case: Case, dtype: torch.dtype, stored: torch.dtype) -> None:
    check(case, dtype, stored)


@pytest.mark.usefixtures("threads")
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    lengths=st.lists(st.integers(1, 150), min_size=1, max_size=9),
    paged=st.booleans(),
    stored=st.sampled_from([torch.float32, torch.int8]),
)
def test_any_cut_into_shares(lengths: list[int], paged: bool, stored: torch.dtype) -> None:
    check(Case(2, 3, 16, 16 if paged else None, tuple(lengths)), torch.float32, stored)


@pytest.mark.usefixtures("threads")
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=5),
    windowed=st.sampled_from(
        [
            (1, None, torch.float32),
            (1, 16, torch.int8),
            (5, 8, torch.float32),
            (16, 16, torch.int8),
            (17, 16, torch.float32),
            (17, None, torch.int8),
            (64, 128, torch.float32),
            (100, 8, torch.int8),
            (200, 128, torch.int8),
            (200, None, torch.float32),
        ]
    ),
)
def test_windows(lengths: list[int], windowed: tuple[int, int | None, torch.dtype]) -> None:
    """Each is a kernel of its own: narrower and wider than a vector, a block and a tile of 64 tokens."""
    window, block, stored = windowed
    check(Case(2, 3, 16, block, tuple(lengths), window), torch.float32, stored)


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.bfloat16),
        (torch.bfloat16, torch.int8),
        (torch.bfloat16, torch.float8_e4m3fn),
    ],
    ids=str,
)
def test_capped_scores(dtype: torch.dtype, stored: torch.dtype) -> None:
    check(Case(2, 2, 64, 16, (513, 1, 70), window=100, cap=2.0, scale=0.25), dtype, stored)
    check(Case(2, 2, 64, None, (200,), cap=50.0), dtype, stored)


@pytest.mark.usefixtures("threads")
def test_more_threads_than_tokens() -> None:
    check(Case(1, 1, 16, None, (2,)), torch.float32, torch.float32)


def test_large_scores_do_not_overflow() -> None:
    filled = Filled(CASES[0], torch.float32, torch.float32)
    filled.query.mul_(200)
    torch.testing.assert_close(filled.attended().double(), filled.expected(), atol=1e-4, rtol=0)
