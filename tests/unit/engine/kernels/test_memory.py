import mmap

import pytest
import torch

from llmprof.engine.kernels import memory
from llmprof.engine.kernels.memory import WeightMemory, huge_empty

HUGE_PAGE = 2 << 20


def test_tensors_lie_side_by_side_on_cache_lines() -> None:
    weights = WeightMemory()
    first = weights.empty((3, 5), dtype=torch.bfloat16)
    second = weights.empty((7,), dtype=torch.float32)
    assert second.data_ptr() - first.data_ptr() == 64
    assert (first.shape, first.dtype) == ((3, 5), torch.bfloat16)
    first.fill_(1.0)
    second.fill_(2.0)
    assert torch.equal(first, torch.ones(3, 5, dtype=torch.bfloat16))


def test_a_tensor_that_fills_no_chunk_beside_the_others_gets_one_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_CHUNK_BYTES", 4096)
    weights = WeightMemory()
    small = weights.empty((4000,), dtype=torch.uint8)
    large = weights.empty((100, 1000), dtype=torch.float32)
    large.fill_(3.0)
    small.fill_(1)
    assert float(large.sum()) == 300_000
    assert int(small.sum()) == 4000


def test_memory_outlives_who_handed_it_out() -> None:
    tensor = WeightMemory().empty((1000,), dtype=torch.float32)
    tensor.fill_(1.0)
    assert float(tensor.sum()) == 1000


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="no huge pages on this system")
def test_where_huge_pages_are_granted_memory_starts_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_huge_pages_granted", lambda: True)
    assert WeightMemory().huge_pages
    assert huge_empty((10,), torch.float32).data_ptr() % HUGE_PAGE == 0


def test_elsewhere_it_is_ordinary_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_huge_pages_granted", lambda: False)
    assert not WeightMemory().huge_pages
    tensor = huge_empty((2, 3), torch.float16)
    assert (tensor.shape, tensor.dtype) == ((2, 3), torch.float16)
