"""Faults of other profilers in the public record, each with the value that is right."""

import io
import json

import pytest
from rich.console import Console

from llmprof.analysis.phases import step_time_s
from llmprof.analysis.report import build_report
from llmprof.instruments.tracer import StepTracer
from llmprof.renderers.run_text import render_run
from llmprof.schema.cost import OpGroup, Phase, SequenceShape, StepShape
from llmprof.schema.report import Report
from tests.fakes import FakeClock
from tests.records import OpPlan, PhasePlan, a_report, a_run_record, model_phase


class AsynchronousDevice:
    """Takes work at once and finishes it later: its marks are passed when the work before them is."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._free_ns = 0
        self._marks_ns: list[int] = []

    def launch(self, ns: int) -> None:
        self._free_ns = max(self._free_ns, self._clock.time_ns) + ns

    def mark(self) -> int:
        self._marks_ns.append(max(self._free_ns, self._clock.time_ns))
        return len(self._marks_ns) - 1

    def synchronize(self) -> None:
        self._clock.time_ns = max(self._clock.time_ns, self._free_ns)

    def elapsed_s(self, begin: int, end: int) -> float:
        return (self._marks_ns[end] - self._marks_ns[begin]) / 1e9

    def reset(self) -> None:
        self._marks_ns.clear()


def test_a_launch_that_returns_at_once_is_not_the_time_of_its_work() -> None:
    """Launched in 10 us, done after 10 ms: a clock that nobody waits for shows a thousandth."""
    clock = FakeClock()
    device = AsynchronousDevice(clock)
    tracer = StepTracer(clock, device, origin_ns=0)
    shape = StepShape(
        phase=Phase.DECODE,
        sequences=(SequenceShape(new_tokens=1, cached_tokens=4),),
        logit_rows=1,
    )
    for _ in range(3):
        tracer.step_begin(shape)
        clock.advance(10_000)
        device.launch(10_000_000)
        tracer.step_end()
    samples = tracer.samples()
    assert [sample.duration_s for sample in samples] == [pytest.approx(10e-6)] * 3
    assert all(step_time_s(sample) >= 10e-3 for sample in samples)


def timed(*plans: PhasePlan) -> Report:
    return build_report(a_run_record(plans, noise=0.0, model=False))


def plain_steps(phase: Phase, step_s: float, *, steps: int = 1, batch: int = 1) -> PhasePlan:
    prefill = phase is Phase.PREFILL
    return PhasePlan(
        phase=phase,
        ops=(OpPlan(group=OpGroup.LM_HEAD, time_s=step_s, flops=1e6),),
        new_tokens=512 if prefill else 1,
        cached_tokens=0 if prefill else 512,
        steps=steps,
        batch=batch,
    )


def test_prompt_and_output_never_share_a_rate() -> None:
    """512 prompt tokens in 0.02 s and 128 tokens in 0.5 s: not 1,230.8 tok/s of either."""
    prefill, decode = timed(
        plain_steps(Phase.PREFILL, 0.02), plain_steps(Phase.DECODE, 0.5 / 128, steps=128)
    ).phases
    assert prefill.new_tokens_per_s.point == pytest.approx(25_600)
    assert decode.new_tokens_per_s.point == pytest.approx(256)


def test_tokens_are_counted_by_their_ids_and_not_by_what_carries_them() -> None:
    """40 tokens in 10 steps, the first 4 with the prefill: 36 in the second that the others take."""
    _, decode = timed(
        plain_steps(Phase.PREFILL, 0.1, batch=4),
        plain_steps(Phase.DECODE, 1 / 9, steps=9, batch=4),
    ).phases
    assert decode.new_tokens_per_s.point == pytest.approx(36)
    assert decode.new_tokens_per_s_per_sequence.point == pytest.approx(9)


def test_batch_is_in_the_rate_and_says_whose_rate_it_is() -> None:
    """8 sequences, 20 ms per step: 400 tok/s in total, 50 for each."""
    (decode,) = timed(plain_steps(Phase.DECODE, 0.02, steps=4, batch=8)).phases
    assert decode.step_s.point == pytest.approx(0.02)
    assert decode.new_tokens_per_s.point == pytest.approx(400)
    assert decode.new_tokens_per_s_per_sequence.point == pytest.approx(50)


def test_a_single_output_token_has_a_null_and_no_number() -> None:
    report = a_report(a_run_record([model_phase(Phase.PREFILL)]))
    document = json.loads(report.model_dump_json())
    assert document["latency"]["tpot_s"] is None
    assert document["latency"]["itl_s"] is None
    console = Console(file=io.StringIO(), width=100)
    with console.capture() as printed:
        render_run(report, console)
    summary = printed.get()
    assert "nan" not in summary.lower()
    assert "None" not in summary


def test_a_device_without_a_known_peak_gets_nobody_elses() -> None:
    """No percentage of a datasheet: its own measured ceilings judge it."""
    report = a_report()
    assert "Example CPU" in report.run.environment.device_name
    assert report.points
    assert all(point.mfu is None and point.mbu is None for point in report.points)
    assert all(point.roof_fraction.point > 0 for point in report.points)
