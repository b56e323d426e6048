"""Kernels out of a torch.profiler trace: a hand-made one in Kineto's Chrome format."""

from typing import Any

import pytest

from llmprof.instruments.kernel_timeline import step_kernels
from llmprof.instruments.step_ops import build_trace
from llmprof.schema.cost import OpGroup, Phase, SequenceShape, StepShape
from llmprof.schema.run import StepSample
from llmprof.schema.trace import TraceClock

SHAPE = StepShape(
    phase=Phase.DECODE, sequences=(SequenceShape(new_tokens=1, cached_tokens=3),), logit_rows=1
)
SAMPLES = tuple(StepSample(shape=SHAPE, start_s=0.1 * n, duration_s=50e-6) for n in range(2))
GEMV = "void gemv2T_kernel_val<int, int, __nv_bfloat16>(float const*)"
NORM = "void at::native::vectorized_layer_norm_kernel<float>(int, float)"


def span(name: str, cat: str, ts: float, dur: float, **args: object) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "args": args}


def launched(name: str, launch: float, start: float, dur: float, number: int) -> list[Any]:
    """A kernel and the call of the runtime that launched it, times in us."""
    return [
        span("cudaLaunchKernel", "cuda_runtime", launch, 2.0, correlation=number),
        span(name, "kernel", start, dur, correlation=number, stream=7),
    ]


EVENTS = [
    {"ph": "M", "name": "process_name", "args": {"name": "python"}},
    span("llmprof.step", "user_annotation", 100.0, 50.0),
    span("llmprof.group.norm", "user_annotation", 105.0, 10.0),
    span("llmprof.group.lm_head", "user_annotation", 120.0, 10.0),
    span("llmprof.step", "user_annotation", 200.0, 50.0),
    *launched(GEMV, 125.0, 140.25, 20.5, 2),
    *launched(NORM, 106.0, 110.0, 3.0, 1),
    # launched in the first step, run while the host is in the second
    *launched("Memcpy", 145.0, 210.0, 1.0, 3),
    *launched(NORM, 90.0, 130.0, 3.0, 4),  # before any step
    span(NORM, "kernel", 220.0, 3.0, correlation=99),  # its launch was not recorded
]


def test_a_kernel_belongs_to_the_step_and_group_that_launched_it() -> None:
    first, second = step_kernels(EVENTS, SAMPLES)
    by_name = {op.op: op for op in first.ops}
    assert set(by_name) == {GEMV, NORM, "Memcpy"}
    assert second.ops == []
    assert by_name[NORM].group is OpGroup.NORM
    assert by_name[GEMV].group is OpGroup.LM_HEAD
    assert by_name["Memcpy"].group is OpGroup.OTHER
    assert by_name[GEMV].start_ns == 140_250
    assert by_name[GEMV].end_ns - by_name[GEMV].start_ns == 20_500
    assert by_name[GEMV].launch_ns == 125_000


def test_the_kernels_of_a_graph_have_one_launch_and_no_group() -> None:
    events = [
        span("llmprof.step", "user_annotation", 100.0, 50.0),
        span("cudaGraphLaunch", "cuda_runtime", 110.0, 5.0, correlation=1),
        span(GEMV, "kernel", 120.0, 5.0, correlation=1),
        span(NORM, "kernel", 125.0, 5.0, correlation=1),
    ]
    (step,) = step_kernels(events, SAMPLES)
    assert [op.group for op in step.ops] == [OpGroup.OTHER] * 2


def test_the_run_file_keeps_columns_in_the_order_of_time() -> None:
    trace = build_trace(TraceClock.DEVICE, [step_kernels(EVENTS, SAMPLES)], seconds_per_op=0.0)
    (timeline,) = trace.timelines  # the later of two steps of equal work, which is empty
    assert (timeline.step, timeline.op) == (1, ())
    trace = build_trace(
        TraceClock.DEVICE, [step_kernels(EVENTS[:4] + EVENTS[5:], SAMPLES[:1])], seconds_per_op=0.0
    )
    (timeline,) = trace.timelines
    names = [trace.ops[index].op for index in timeline.op]
    assert names == [NORM, GEMV, "Memcpy"]
    assert timeline.start_s == pytest.approx((10e-6, 40.25e-6, 110e-6))
    assert timeline.launch_s == pytest.approx((6e-6, 25e-6, 45e-6))
    assert timeline.duration_s == pytest.approx((3e-6, 20.5e-6, 1e-6))
    assert {op.op: op.multiplies for op in trace.ops} == {NORM: False, GEMV: True, "Memcpy": False}
