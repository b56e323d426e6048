"""When the ops of a step ran, on small modules and kernels of the engine on the CPU."""

import torch
from torch.nn import functional

from llmprof.engine.kernels.launch import observed_calls
from llmprof.engine.kernels.norm import rms_norm
from llmprof.instruments.op_timeline import OpTimeline, seconds_per_op
from llmprof.instruments.step_ops import StepOps
from llmprof.schema.cost import OpGroup, Phase, SequenceShape, StepShape
from tests.fakes import FakeClock

SHAPE = StepShape(
    phase=Phase.DECODE,
    sequences=(SequenceShape(new_tokens=1, cached_tokens=3),),
    logit_rows=1,
)
X, GAINS = torch.ones(2, 32), torch.ones(32)


def test_each_op_stands_in_its_group_with_its_own_time() -> None:
    """Every reading of the clock moves it by 10 ns: an op lies between two of them."""
    timeline = OpTimeline(FakeClock(1000, per_reading_ns=10), origin_ns=0)
    with torch.inference_mode(), observed_calls(timeline), timeline:
        X.exp()  # before any step: not seen
        timeline.step_begin(SHAPE)
        timeline.group_begin(OpGroup.NORM)
        rms_norm(X, GAINS, 1e-5)
        timeline.group_end()
        functional.linear(X, torch.ones(4, 32))
        timeline.step_end()
    (step,) = timeline.steps()
    assert [(op.op, op.group) for op in step.ops] == [
        ("llmprof.rms_norm", OpGroup.NORM),
        ("aten.ones", OpGroup.OTHER),
        ("aten.mm", OpGroup.OTHER),
    ]
    assert {op.end_ns - op.start_ns for op in step.ops} == {10}
    assert step.ops[0].start_ns == step.start_ns + 10
    assert step.sample.start_s == 1010e-9


def test_a_kernel_of_ours_is_one_op_whatever_it_calls() -> None:
    timeline = OpTimeline(FakeClock(per_reading_ns=1), origin_ns=0)
    with torch.inference_mode(), timeline:
        timeline.step_begin(SHAPE)
        timeline.op_begin("llmprof.outer")
        X.exp()
        timeline.op_begin("llmprof.inner")
        timeline.op_end()
        timeline.op_end()
        X.exp()
        timeline.step_end()
    assert ops_of(timeline.steps()) == ["llmprof.outer", "aten.exp"]


def test_an_observed_kernel_gives_the_same_result() -> None:
    expected = rms_norm(X, GAINS, 1e-5)
    timeline = OpTimeline(FakeClock(per_reading_ns=1), origin_ns=0)
    with torch.inference_mode(), observed_calls(timeline), timeline:
        timeline.step_begin(SHAPE)
        found = rms_norm(X, GAINS, 1e-5)
        timeline.step_end()
    assert torch.equal(found, expected)


def test_what_an_op_is_recorded_too_long_is_one_reading_of_the_clock() -> None:
    assert seconds_per_op(FakeClock(per_reading_ns=40)) == 40e-9


def ops_of(steps: tuple[StepOps, ...]) -> list[str]:
    return [op.op for step in steps for op in step.ops]
