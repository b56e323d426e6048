"""What is captured in a CUDA graph, without a GPU: a recording takes the graph's place.

Like a graph it repeats operators on the same addresses in the same shapes, and nothing else that
Python did.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from llmprof.engine.attention import FlashAttention, StandardAttention
from llmprof.engine.engine import Engine
from llmprof.engine.execution import graph_step
from llmprof.engine.execution.graph_step import context_bucket, record_graph
from llmprof.engine.execution.replay_runner import ReplayRunner
from llmprof.engine.execution.step_program import StepProgram, recording
from llmprof.engine.probe import NullProbe
from llmprof.engine.sampling import GreedySampler
from tests.tiny_decoders import LLAMA, PROMPT, load_engine, settings, write_decoder


class StandInGraph:
    program: StepProgram | None = None

    def replay(self) -> None:
        assert self.program is not None
        self.program.replay(NullProbe())


class StandInStream:
    def wait_stream(self, other: "StandInStream") -> None:
        pass


@contextlib.contextmanager
def capture(graph: StandInGraph) -> Iterator[None]:
    with recording() as recorder:
        yield
    graph.program = recorder.program()


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets of four tokens, so that a short run goes through several."""
    monkeypatch.setattr(graph_step, "CONTEXT_STEP", 4)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", StandInGraph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.cuda, "Stream", StandInStream)
    monkeypatch.setattr(torch.cuda, "current_stream", StandInStream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())


def as_on_a_gpu(engine: Engine, attention: FlashAttention | StandardAttention) -> Engine:
    """No kernels that follow block tables."""
    decoder = dataclasses.replace(engine.decoder, attention=attention)
    return dataclasses.replace(
        engine, decoder=decoder, runner=ReplayRunner("graphs", record_graph, context_bucket)
    )


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize("layout", ["contiguous", "paged"])
@pytest.mark.parametrize("attention", [FlashAttention, StandardAttention])
def test_the_same_tokens_through_all_buckets(
    attention: type[FlashAttention | StandardAttention],
    layout: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write_decoder(tmp_path, LLAMA)
    engine = load_engine(settings(path, kv_cache={"layout": layout, "block_tokens": 8}))
    expected = engine.generate(PROMPT, GreedySampler(), max_tokens=14).ids
    graphed = as_on_a_gpu(engine, attention())
    monkeypatch.setattr("llmprof.engine.kv_cache.pool.runs_native", lambda device: False)
    assert graphed.generate(PROMPT, GreedySampler(), max_tokens=14).ids == expected
    assert isinstance(graphed.runner, ReplayRunner)
    first, last = len(PROMPT) + 1, len(PROMPT) + 13
    assert len(graphed.runner._recorded) >= (last - 1) // 4 - (first - 1) // 4 + 1
