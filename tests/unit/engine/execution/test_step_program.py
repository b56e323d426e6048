"""Recording and replay, apart from any model."""

import torch

from llmprof.engine.execution.step_program import Recording, StepProgram, recording
from llmprof.engine.kernels.norm import rms_norm
from llmprof.engine.kernels.residual import add_
from llmprof.engine.probe import NullProbe
from llmprof.schema.cost import OpGroup, StepShape

GAINS = torch.ones(32)


class Groups:
    def __init__(self) -> None:
        self.seen: list[OpGroup] = []

    def step_begin(self, shape: StepShape) -> None:
        pass

    def step_end(self) -> None:
        pass

    def group_begin(self, group: OpGroup) -> None:
        self.seen.append(group)

    def group_end(self) -> None:
        pass


def work(x: torch.Tensor, recorder: Recording | NullProbe) -> torch.Tensor:
    """Two kernels of ours, four operators of torch that move data and two that do not."""
    recorder.group_begin(OpGroup.NORM)
    normed = rms_norm(x, GAINS, 1e-5)
    recorder.group_end()
    recorder.group_begin(OpGroup.ACTIVATION)
    doubled = torch.cat((normed, normed)).view(-1, 32)
    doubled.mul_(2.0)
    recorder.group_end()
    first = doubled.narrow(0, 0, x.shape[0])
    add_(first, x)
    return first.topk(32, dim=-1).values.exp()


def record(x: torch.Tensor) -> tuple[StepProgram, torch.Tensor]:
    with torch.inference_mode(), recording() as recorder:
        out = work(x, recorder)
    return recorder.program(), out


@torch.inference_mode()
def test_a_replay_works_on_what_its_inputs_hold_now() -> None:
    x = torch.randn(3, 32)
    program, out = record(x)
    for seed in range(3):
        x.copy_(torch.randn(3, 32, generator=torch.Generator().manual_seed(seed)))
        expected = work(x.clone(), NullProbe())
        program.replay(NullProbe())
        assert torch.equal(out, expected)


def test_what_needs_python_is_counted() -> None:
    program, _ = record(torch.randn(3, 32))
    assert (program.num_native_calls, program.num_python_calls) == (2, 4)


@torch.inference_mode()
def test_groups_are_announced_in_order() -> None:
    x = torch.randn(3, 32)
    program, out = record(x)
    expected = out.clone()
    probe = Groups()
    program.replay(probe)
    assert probe.seen == [
        OpGroup.NORM,
        OpGroup.ACTIVATION,
        OpGroup.ACTIVATION,
        OpGroup.OTHER,
        OpGroup.OTHER,
        OpGroup.OTHER,
    ]
    assert torch.equal(out, expected)


class Ops(Groups):
    wants_ops = True

    def op_begin(self, name: str) -> None:
        self.seen.append(OpGroup.SAMPLING)
        self.names.append(name)

    def op_end(self) -> None:
        self.names.append("end")

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []


@torch.inference_mode()
def test_each_kernel_of_ours_is_announced_by_name() -> None:
    """Operators of torch are not: its own means see them."""
    x = torch.randn(3, 32)
    program, out = record(x)
    expected = out.clone()
    probe = Ops()
    program.replay(probe)
    assert probe.names == ["llmprof.rms_norm", "end", "llmprof.add_", "end"]
    assert probe.seen[:2] == [OpGroup.NORM, OpGroup.SAMPLING]
    assert torch.equal(out, expected)


def test_what_is_paused_leaves_no_trace() -> None:
    x = torch.randn(3, 32)
    with torch.inference_mode(), recording() as recorder:
        with recorder.paused():
            rms_norm(x, GAINS, 1e-5).exp()
        recorder.repeat(lambda: x.zero_())
    program = recorder.program()
    assert (program.num_native_calls, program.num_python_calls) == (0, 1)
    with torch.inference_mode():
        program.replay(NullProbe())
    assert not x.any()
