"""Prefill attention against float64: sizes, offsets, groups, strides, threads, and what it refuses."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from llmprof.engine.kernels import launch
from llmprof.engine.kernels.attention_prefill import prefill_attention, prefill_attention_fits
from llmprof.engine.kernels.tiles import tiles_available

needs_tiles = pytest.mark.skipif(not tiles_available(), reason="needs AMX")
ATOL = 1.2e-2
"""Values are of unit variance: rounding of the result (2^-9) and of probabilities (2^-9)."""


@dataclass(frozen=True, slots=True)
class Case:
    sequences: int
    kv_heads: int
    group: int
    head_dim: int
    new: int
    cached: int


CASES = [
    Case(1, 3, 3, 64, 512, 0),
    Case(1, 1, 1, 32, 32, 0),
    Case(1, 2, 1, 32, 33, 0),
    Case(2, 2, 2, 64, 40, 5),
    Case(1, 1, 3, 128, 100, 300),
    Case(1, 2, 4, 64, 32, 1000),  # whole chunks that no query sees the end of
    Case(3, 3, 3, 96, 65, 17),
    Case(1, 1, 8, 64, 63, 224),
]


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Five, however small the work is."""
    monkeypatch.setattr(launch, "_SHARED_FROM_BYTES", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(5)
    yield
    torch.set_num_threads(before)


def random_run(case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries within a fused projection, keys and values within a store that is longer."""
    generator = torch.Generator().manual_seed(case.new + case.cached)
    heads, tokens = case.kv_heads * case.group, case.new + case.cached
    fused = torch.randn(case.sequences * case.new, heads + 2, case.head_dim, generator=generator)
    shape = (2, case.sequences, case.kv_heads, tokens + 7, case.head_dim)
    store = torch.randn(shape, generator=generator).bfloat16()
    store[..., tokens:, :] = math.nan  # whatever lies behind must not be looked at
    keys, values = store[..., :tokens, :].unbind(0)
    return (2 * fused).bfloat16()[:, :heads], keys, values


def expected(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    sequences, kv_heads, tokens, head_dim = keys.shape
    new = query.shape[0] // sequences
    queries = query.double().view(sequences, new, kv_heads, -1, head_dim)
    scores = torch.einsum("sqhgd,shtd->shgqt", queries, keys.double()) / math.sqrt(head_dim)
    hidden = torch.arange(tokens) > torch.arange(tokens - new, tokens).unsqueeze(1)
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
    return torch.einsum("shgqt,shtd->sqhgd", weights, values.double()).reshape(query.shape[0], -1)


@needs_tiles
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_query_attends_up_to_itself(case: Case) -> None:
    run = random_run(case)
    torch.testing.assert_close(prefill_attention(*run).double(), expected(*run), atol=ATOL, rtol=0)


@needs_tiles
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("case", CASES[::3], ids=str)
def test_threads_take_pieces_until_none_is_left(case: Case) -> None:
    run = random_run(case)
    alone = prefill_attention(*run)
    torch.set_num_threads(1)
    assert torch.equal(alone, prefill_attention(*run))


@needs_tiles
def test_keys_and_values_in_different_layouts() -> None:
    query, keys, values = random_run(CASES[3])
    found = prefill_attention(query, keys.transpose(1, 2).contiguous().transpose(1, 2), values)
    assert torch.equal(found, prefill_attention(query, keys, values))


@needs_tiles
def test_scores_far_apart_leave_one_token() -> None:
    """In the last chunk, after peaks that are hundreds lower."""
    tokens, dim = 600, 32
    keys = torch.zeros(1, 1, tokens, dim)
    keys[0, 0, 555] = 64.0
    values = (
        torch.arange(tokens, dtype=torch.float32).view(1, 1, tokens, 1).expand(1, 1, tokens, dim)
    )
    query = torch.full((40, 1, dim), 8.0)
    out = prefill_attention(query.bfloat16(), keys.bfloat16(), values.bfloat16())
    assert torch.equal(out.float(), values[0, 0, 555].bfloat16().float().expand(40, dim))


@needs_tiles
def test_torch_sees_one_operator() -> None:
    run = random_run(CASES[2])
    torch.library.opcheck(torch.ops.llmprof.prefill_attention, run, test_utils="test_faketensor")


@pytest.mark.parametrize(
    ("dtype", "group", "head_dim", "new_tokens"),
    [
        (torch.float32, 3, 64, 512),
        (torch.float16, 3, 64, 512),
        (torch.bfloat16, 3, 64, 31),
        (torch.bfloat16, 3, 80, 512),
        (torch.bfloat16, 64, 128, 512),
    ],
)
def test_what_is_left_to_torch(
    dtype: torch.dtype, group: int, head_dim: int, new_tokens: int
) -> None:
    assert not prefill_attention_fits(dtype, group, head_dim, new_tokens)


def test_what_is_not() -> None:
    assert prefill_attention_fits(torch.bfloat16, 3, 64, 512) == tiles_available()
