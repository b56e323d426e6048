import numpy as np
import pytest
import torch

from llmprof.ceilings.streaming_read import StreamingRead


@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_word_is_read_once_per_pass(threads: int, streams: int) -> None:
    words = np.random.default_rng(0).integers(-(2**62), 2**62, size=4 * 3 * 2 * 1000)
    expected = sum(int(word) for word in words) * 3
    read = StreamingRead(threads, streams)
    data = torch.from_numpy(words).view(torch.float32)
    assert (read(data, 3) - expected) % 2**64 == 0


def test_words_that_fill_no_stream_are_left_out() -> None:
    words = torch.ones(4 * 2 * 10 + 7, dtype=torch.int64)
    assert StreamingRead(2, 4)(words.view(torch.float32), 1) == 80


def test_threads_of_other_numba_kernels_stay_as_they_were() -> None:
    import numba

    before = numba.get_num_threads()
    StreamingRead(1, 4)(torch.zeros(1 << 12), 1)
    assert numba.get_num_threads() == before
