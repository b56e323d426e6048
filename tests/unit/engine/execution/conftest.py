import pytest
import torch

from llmprof.engine import linear
from llmprof.engine.execution import graph_step


@pytest.fixture
def fresh_compiler() -> None:
    """What one test compiled, or gave up, is nothing to the next."""
    torch.compiler.reset()


@pytest.fixture
def torch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel of ours for products, and none that appends; buckets of four tokens."""
    monkeypatch.setattr(linear, "_most_rows", lambda *_: 0)
    monkeypatch.setattr("llmprof.engine.kv_cache.pool.runs_native", lambda device: False)
    monkeypatch.setattr(graph_step, "CONTEXT_STEP", 4)
