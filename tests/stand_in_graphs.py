"""What takes the place of CUDA graphs on a CPU: a recording.

Like a graph it repeats operators on the same addresses in the same shapes, and nothing else that
Python did.
"""

import contextlib
from collections.abc import Iterator

import pytest
import torch

from llmprof.engine.execution import graph_step
from llmprof.engine.execution.step_program import StepProgram, recording
from llmprof.engine.probe import NullProbe


class StandInGraph:
    program: StepProgram | None = None

    def replay(self) -> None:
        assert self.program is not None
        self.program.replay(NullProbe())


class StandInStream:
    def wait_stream(self, other: "StandInStream") -> None:
        pass


@contextlib.contextmanager
def capture(graph: StandInGraph, *, pool: object) -> Iterator[None]:
    with recording() as recorder:
        yield
    graph.program = recorder.program()


def use_stand_in_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With buckets of four tokens, so that a short run goes through several."""
    monkeypatch.setattr(graph_step, "CONTEXT_STEP", 4)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", StandInGraph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.cuda, "Stream", StandInStream)
    monkeypatch.setattr(torch.cuda, "current_stream", StandInStream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
