import pytest

from llmprof.analysis.metrics import (
    METRICS,
    TPOT,
    TTFT,
    exact_counters,
    metric_named,
    report_estimates,
    round_values,
)
from llmprof.errors import InputError
from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.metric import Better, MetricKind, Unit
from tests.records import OpPlan, PhasePlan, a_report, a_run_record, model_phase


def test_names_say_unit_and_statistic() -> None:
    for name, metric in METRICS.items():
        if metric.kind is MetricKind.TIMED:
            assert name.endswith(".p50")
        if metric.unit is Unit.SECONDS:
            assert "_s." in name
    assert METRICS["decode.roof_fraction.p50"].better is Better.HIGHER


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        metric_named("decode.tpot_ms.p50")
    assert caught.value.remedy == "Did you mean decode.tpot_s.p50?"


def test_estimates_are_those_of_the_report() -> None:
    report = a_report()
    found = report_estimates(report)
    decode = next(one for one in report.phases if one.phase is Phase.DECODE)
    assert found["decode.step_s.p50"] == decode.step_s
    assert found[TTFT] == report.latency.ttft_s
    assert "mixed.step_s.p50" not in found


def test_values_of_a_round_by_hand() -> None:
    """One prefill of 100 ms, then four decode steps of 10 ms each."""
    plans = (
        _plan(Phase.PREFILL, 0.1, steps=1),
        _plan(Phase.DECODE, 0.01, steps=4),
    )
    record = a_run_record(plans, rounds=1, noise=0.0, model=False)
    values = round_values(record.rounds[0])
    assert values[TTFT] == pytest.approx(0.1)
    assert values[TPOT] == pytest.approx(0.01)
    assert values["decode.step_s.p50"] == pytest.approx(0.01)
    assert "mixed.step_s.p50" not in values


def test_counters_come_from_the_engine_and_the_counting_pass() -> None:
    record = a_run_record()
    counters = exact_counters(record)
    decode = next(one for one in record.counted if one.shape.phase is Phase.DECODE)
    assert counters["decode.ops_per_token"] == sum(op.calls for op in decode.ops)
    assert counters["weights.bytes"] == record.engine.weight_bytes


def test_ops_per_token_share_the_step_among_its_sequences() -> None:
    plans = (model_phase(Phase.DECODE, batch=4),)
    record = a_run_record(plans)
    calls = sum(op.calls for op in record.counted[0].ops)
    assert exact_counters(record)["decode.ops_per_token"] == calls / 4


def test_what_was_not_counted_is_absent() -> None:
    assert "decode.ops_per_token" not in exact_counters(a_run_record(counted=False))


def _plan(phase: Phase, time_s: float, *, steps: int) -> PhasePlan:
    return PhasePlan(
        phase=phase,
        ops=(OpPlan(group=OpGroup.ATTENTION, time_s=time_s),),
        host_s=0.0,
        steps=steps,
    )
