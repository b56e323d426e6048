import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmprof.ceilings import pool
from llmprof.ceilings.pool import Stream, random_pool, random_tensor
from llmprof.errors import CapabilityError
from llmprof.instruments.host_memory import HostMemory

PAGE_FLOATS = 1024


def with_free_memory(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    monkeypatch.setattr(pool, "host_memory", lambda: HostMemory(1 << 40, free_bytes))


def test_a_pool_is_as_large_as_wanted_in_whole_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    with_free_memory(monkeypatch, 1 << 30)
    assert random_pool((2 << 20) + 5, "cpu", torch.bfloat16).nbytes == 2 << 20


def test_a_pool_takes_a_quarter_of_the_free_memory_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    with_free_memory(monkeypatch, 12 << 20)
    assert random_pool(1 << 40, "cpu", torch.float32).nbytes == 3 << 20


def test_without_memory_there_are_no_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    with_free_memory(monkeypatch, 3 << 20)
    with pytest.raises(CapabilityError, match="cpu"):
        random_pool(1 << 40, "cpu", torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_numbers_are_random_and_normal_to_the_last(dtype: torch.dtype) -> None:
    numbers = random_tensor((3 << 20,), "cpu", dtype).float()
    for part in numbers.chunk(5):
        assert part.mean().item() == pytest.approx(0.0, abs=0.01)
        assert part.std().item() == pytest.approx(1.0, abs=0.01)


def test_integers_cover_their_range() -> None:
    numbers = random_tensor((1000, 1000), "cpu", torch.int8)
    assert (int(numbers.min()), int(numbers.max())) == (-128, 127)
    assert not torch.equal(numbers[0], numbers[1])


@given(
    pool_pages=st.integers(1, 8),
    wanted=st.lists(st.integers(1, 10 * PAGE_FLOATS), min_size=1, max_size=30),
)
def test_what_was_taken_comes_back_only_after_the_rest_of_the_pool(
    pool_pages: int, wanted: list[int]
) -> None:
    whole = torch.arange(pool_pages * PAGE_FLOATS, dtype=torch.float32)
    stream = Stream(whole)
    expected_start = 0
    for numel in wanted:
        taken = stream.take(numel)
        assert taken.numel() == min(numel, whole.numel())
        start = int(taken[0])
        assert torch.equal(taken, whole[start : start + taken.numel()])
        assert start % PAGE_FLOATS == 0
        assert start == expected_start or (start == 0 and expected_start + numel > whole.numel())
        expected_start = -(-(start + taken.numel()) // PAGE_FLOATS) * PAGE_FLOATS
