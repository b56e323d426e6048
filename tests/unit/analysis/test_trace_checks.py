"""A trace that does not fit the clean step takes the verdict away, on either clock."""

import pytest

from llmprof.analysis.report import build_report
from llmprof.analysis.trace_checks import trace_checks
from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.measurement import Estimate
from llmprof.schema.ops import PhaseOps
from llmprof.schema.trace import TraceClock, TracedOp
from llmprof.schema.verdict import Limit
from tests.records import a_run_record, model_phase
from tests.traces import traced


def a_table(
    clock: TraceClock, *, busy_s: float, unmapped: float = 0.0, idle_s: float | None = None
) -> PhaseOps:
    """Beside a clean step of 10 ms."""
    return PhaseOps(
        phase=Phase.DECODE,
        clock=clock,
        num_steps=3,
        step_s=10e-3,
        traced_step_s=11e-3,
        busy_s=Estimate(point=busy_s, low=busy_s, high=busy_s, confidence=0.75, num_samples=3),
        between_s=10e-3 - busy_s,
        host_wait_s=None,
        idle_s=idle_s,
        ops_per_step=9,
        ops_per_token=9,
        mean_op_s=1e-3,
        unmapped_fraction=unmapped,
        entries=(),
    )


@pytest.mark.parametrize("clock", TraceClock)
@pytest.mark.parametrize(("unmapped", "holds"), [(0.0, True), (0.049, True), (0.051, False)])
def test_a_twentieth_may_be_unmapped(clock: TraceClock, unmapped: float, holds: bool) -> None:
    table = a_table(clock, busy_s=10e-3, unmapped=unmapped, idle_s=0.0)
    failed = [check.reason for check in trace_checks(table, 10e-3) if not check.holds]
    assert bool(failed) is not holds
    assert all("belongs to no op group" in reason for reason in failed)


@pytest.mark.parametrize(
    ("clock", "busy_s", "holds"),
    [
        (TraceClock.DEVICE, 10.2e-3, True),
        (TraceClock.DEVICE, 10.4e-3, False),
        (TraceClock.DEVICE, 9.6e-3, False),
        (TraceClock.HOST, 10.4e-3, True),
        (TraceClock.HOST, 11.4e-3, True),
        (TraceClock.HOST, 11.6e-3, False),
        (TraceClock.HOST, 4.0e-3, True),
    ],
)
def test_ops_beside_the_clean_step(clock: TraceClock, busy_s: float, holds: bool) -> None:
    """Three per cent for kernels without gaps; on a CPU 15 above, and below whatever Python takes."""
    idle_s = 0.0 if clock is TraceClock.DEVICE else None
    device_s = 10e-3 if clock is TraceClock.DEVICE else None
    checks = trace_checks(a_table(clock, busy_s=busy_s, idle_s=idle_s), device_s)
    assert all(check.holds for check in checks) is holds


def test_gaps_explain_what_kernels_do_not_fill() -> None:
    table = a_table(TraceClock.DEVICE, busy_s=6e-3, idle_s=4.5e-3)
    assert all(check.holds for check in trace_checks(table, 10e-3))
    lost = a_table(TraceClock.DEVICE, busy_s=6e-3, idle_s=2e-3)
    (failed,) = [check for check in trace_checks(lost, 10e-3) if not check.holds]
    assert failed.observed == pytest.approx(0.2)


def test_a_run_without_a_trace_is_judged_without_these_checks() -> None:
    assert trace_checks(None, 10e-3) == ()


def test_the_verdict_of_a_contradicted_phase_is_inconclusive_with_the_reason() -> None:
    record = a_run_record([model_phase(Phase.DECODE)], noise=0.002)
    (clean,) = build_report(record).verdicts
    assert clean.limit is not Limit.INCONCLUSIVE
    product = TracedOp(op="aten.mm", group=OpGroup.DOWN_PROJECTION, multiplies=True)
    stray = TracedOp(op="aten.arange", group=OpGroup.OTHER, multiplies=False)
    step_s = build_report(record).phases[0].step_s.point
    fitting = traced(record, ((product, 0.9 * step_s),))
    assert build_report(fitting).verdicts[0].limit is clean.limit
    for ops in (((product, 0.7 * step_s), (stray, 0.1 * step_s)), ((product, 1.2 * step_s),)):
        (verdict,) = build_report(traced(record, ops)).verdicts
        assert verdict.limit is Limit.INCONCLUSIVE
        assert any("traced op" in reason for reason in verdict.reasons)
