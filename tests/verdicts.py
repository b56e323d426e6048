"""Runs of one phase with a known answer, and the verdict on them."""

from llmprof.analysis.report import build_report
from llmprof.schema.cost import ByteTraffic, OpGroup, Phase
from llmprof.schema.report import Report
from llmprof.schema.run import RunRecord
from llmprof.schema.verdict import Limit, Saturation, Verdict
from tests.records import OpPlan, PhasePlan, a_run_record


def reads(link_s: float, efficiency: float = 1.0, calls: int = 1) -> OpPlan:
    """An op that reads weights for `link_s` at 30 GB/s and takes 1 / efficiency as long."""
    size = link_s * 30e9
    return OpPlan(
        group=OpGroup.DOWN_PROJECTION,
        calls=calls,
        flops=size,
        traffic=ByteTraffic(weights=size),
        time_s=link_s / efficiency,
    )


def multiplies(link_s: float, efficiency: float = 1.0, dtype: str = "bf16") -> OpPlan:
    """An op that multiplies for `link_s` at 1.2 TFLOP/s and takes 1 / efficiency as long."""
    return OpPlan(
        group=OpGroup.GATE_UP_PROJECTION,
        calls=1,
        flops=link_s * 1.2e12,
        traffic=ByteTraffic(weights=link_s * 1e9),
        time_s=link_s / efficiency,
        dtype=dtype,
    )


def small_ops(calls: int) -> OpPlan:
    """Norms that take hardly more than their fixed cost."""
    return OpPlan(group=OpGroup.NORM, calls=calls, time_s=calls * 2.2e-6)


def phase_record(*ops: OpPlan, phase: Phase = Phase.DECODE, **options: object) -> RunRecord:
    """A run of one phase; options are those of `PhasePlan` and of `a_run_record`."""
    plan_options = {
        name: options.pop(name) for name in ("host_s", "grouped_slowdown") if name in options
    }
    plan = PhasePlan(phase=phase, ops=ops, steps=4, **plan_options)  # type: ignore[arg-type]
    return a_run_record((plan,), **options)  # type: ignore[arg-type]


def the_verdict(record: RunRecord) -> Verdict:
    (verdict,) = build_report(record).verdicts
    return verdict


def inconclusive(record: RunRecord, reason: str) -> Verdict:
    """The verdict, after asserting that `reason` is among its reasons."""
    verdict = the_verdict(record)
    assert verdict.limit == Limit.INCONCLUSIVE
    assert verdict.saturation == Saturation.UNKNOWN
    assert any(reason in one for one in verdict.reasons), verdict.reasons
    assert "is inconclusive" in verdict.sentence
    return verdict


def caveat_codes(report: Report) -> set[str]:
    return {caveat.code for caveat in report.caveats}
