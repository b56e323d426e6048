"""Ranges of NVTX: the phase around a step, the op group inside of it."""

import pytest

from llmprof.engine.probe import wants_groups
from llmprof.errors import CapabilityError
from llmprof.instruments.nvtx_ranges import NvtxRanges, open_ranges
from llmprof.instruments.tracer import StepTracer
from llmprof.schema.cost import OpGroup, Phase, SequenceShape, StepShape
from tests.fakes import FakeClock, FakeNvtx


def a_step(phase: Phase) -> StepShape:
    sequence = SequenceShape(new_tokens=1, cached_tokens=5)
    return StepShape(phase=phase, sequences=(sequence,), logit_rows=1)


def test_ranges_nest_and_every_one_is_closed() -> None:
    nvtx = FakeNvtx()
    tracer = StepTracer(FakeClock(), None, 0)
    probe = NvtxRanges(tracer, nvtx)
    for phase in (Phase.PREFILL, Phase.DECODE):
        probe.step_begin(a_step(phase))
        for group in (OpGroup.NORM, OpGroup.ATTENTION):
            probe.group_begin(group)
            nvtx.launch()
            probe.group_end()
        nvtx.launch()
        probe.step_end()
    assert nvtx.open == []
    assert nvtx.launched_in == [
        *("llmprof.prefill/norm", "llmprof.prefill/attention", "llmprof.prefill"),
        *("llmprof.decode/norm", "llmprof.decode/attention", "llmprof.decode"),
    ]
    assert [one.shape.phase for one in tracer.samples()] == [Phase.PREFILL, Phase.DECODE]


def test_steps_that_are_one_graph_go_kernel_by_kernel() -> None:
    tracer = StepTracer(FakeClock(), None, 0)
    assert not wants_groups(tracer)
    assert wants_groups(NvtxRanges(tracer, FakeNvtx()))


def test_a_cpu_has_no_ranges() -> None:
    with pytest.raises(CapabilityError, match="run is on cpu"):
        open_ranges("cpu")


def test_a_torch_without_nvtx_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise RuntimeError("NVTX functions not installed.\nMore words")

    monkeypatch.setattr("torch.cuda.nvtx.range_push", refuse)
    with pytest.raises(CapabilityError, match=r"\(NVTX functions not installed\.\)"):
        open_ranges("cuda:0")


def test_the_ranges_are_torch_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    nvtx = FakeNvtx()
    monkeypatch.setattr("torch.cuda.nvtx.range_push", nvtx.range_push)
    monkeypatch.setattr("torch.cuda.nvtx.range_pop", nvtx.range_pop)
    open_ranges("cuda:0").range_push("llmprof.decode")
    assert nvtx.open == ["llmprof.decode"]
