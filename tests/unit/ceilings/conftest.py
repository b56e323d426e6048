from collections.abc import Iterator

import pytest
import torch

from llmprof.ceilings import read_probe


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other take ages where others use the cores too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def short_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_probe, "_LEAST_CALL_BYTES", 1 << 20)
