import numpy as np
import pytest
import torch

from llmprof.ceilings.streaming_read import StreamingRead

LINE_WORDS = 16


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("streams", "prefetch_bytes"), [(1, 0), (4, 0), (4, 1024), (8, 0)])
def test_every_word_is_read_once_per_pass(streams: int, prefetch_bytes: int, threads: int) -> None:
    words = np.random.default_rng(0).integers(-(2**31), 2**31, size=8 * LINE_WORDS * 1001)
    expected = sum(int(word) for word in words) * 3
    data = torch.from_numpy(words.astype(np.int32)).view(torch.float32)
    torch.set_num_threads(threads)
    assert (StreamingRead(streams, prefetch_bytes=prefetch_bytes)(data, 3) - expected) % 2**32 == 0


def test_lines_that_fill_no_turn_are_left_out() -> None:
    words = torch.ones(8 * LINE_WORDS * 5 + 7 * LINE_WORDS + 3, dtype=torch.int32)
    assert StreamingRead(4)(words.view(torch.float32), 1) == 8 * LINE_WORDS * 5


def test_less_than_one_turn_reads_nothing() -> None:
    assert StreamingRead(4)(torch.ones(LINE_WORDS), 1) == 0
