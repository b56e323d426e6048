"""The read kernel of the ceilings: that it reads every word, as often as it is told."""

import pytest
import torch

from llmprof.ceilings import triton_read


@pytest.mark.parametrize("words", [1, 4096, 3 * 4096 + 5])
def test_every_word_is_read_in_every_pass(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_read, "_num_multiprocessors", lambda device: 1)
    monkeypatch.setattr(triton_read, "_PROGRAMS_PER_MULTIPROCESSOR", 2)
    data = torch.arange(1, words + 1, dtype=torch.int32)
    sums = triton_read.triton_read(data.view(torch.float32), 3)
    assert int(sums.sum()) == 3 * words * (words + 1) // 2
