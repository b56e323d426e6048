import pytest

from llmprof.analysis.gate_check import judge_budgets, judge_saved, made_unstable, unstable
from llmprof.analysis.gate_looks import TimedRule
from llmprof.analysis.metrics import TPOT, metric_named
from llmprof.errors import InputError
from llmprof.schema.cost import Phase
from llmprof.schema.gate_result import Check, GateVerdict, Judgement
from llmprof.schema.report import Report
from llmprof.schema.settings import GateBudget
from tests.records import QUIET, a_report, a_run_record, model_phase

FRACTION = "decode.roof_fraction.p50"


def launch(seed: int, efficiency: float = 0.9) -> Report:
    plans = [model_phase(phase, efficiency=efficiency) for phase in (Phase.PREFILL, Phase.DECODE)]
    return a_report(a_run_record(plans, seed=seed, rounds=6, noise=0.005))


BASE = [launch(seed) for seed in range(4)]


def judged(
    baseline: list[Report],
    candidate: list[Report],
    *,
    name: str = TPOT,
    tolerance: float = 0.05,
    floor: float | None = None,
) -> Judgement:
    floors = {} if floor is None else {name: floor}
    (one,) = judge_saved([TimedRule(metric_named(name), tolerance)], baseline, candidate, floors)
    return one


def test_one_launch_without_a_noise_floor_is_inconclusive_whatever_it_shows() -> None:
    one = judged(BASE[:1], [launch(9, efficiency=0.3)])
    assert (one.check, one.verdict) == (Check.ONE_LAUNCH, GateVerdict.INCONCLUSIVE)
    assert "llmprof gate calibrate" in one.reason
    assert one.p_value is None


@pytest.mark.parametrize(
    ("efficiency", "floor", "verdict"),
    [
        (0.9, 0.01, GateVerdict.PASS),  # the same code, within 5 % less the floor
        (0.9, 0.06, GateVerdict.INCONCLUSIVE),  # launches differ by more than the tolerance
        (0.6, 0.01, GateVerdict.FAIL),  # about 1.4 times as long
        (0.8, 0.10, GateVerdict.INCONCLUSIVE),  # 11 % worse, less than two floors
    ],
)
def test_one_launch_against_a_noise_floor(
    efficiency: float, floor: float, verdict: GateVerdict
) -> None:
    assert judged(BASE[:1], [launch(9, efficiency)], floor=floor).verdict is verdict


def test_four_launches_a_side_are_tested() -> None:
    same = judged(BASE, [launch(seed) for seed in (11, 12, 13, 14)])
    slower = judged(BASE, [launch(seed, 0.7) for seed in (11, 12, 13, 14)])
    assert (same.check, same.verdict) == (Check.LAUNCHES, GateVerdict.PASS)
    assert slower.verdict is GateVerdict.FAIL
    assert slower.p_value == pytest.approx(1 / 70)


def test_a_roof_fraction_is_better_when_higher() -> None:
    slower = [launch(seed, 0.7) for seed in (11, 12, 13, 14)]
    assert judged(BASE, slower, name=FRACTION).verdict is GateVerdict.FAIL
    assert judged(slower, BASE, name=FRACTION).verdict is GateVerdict.PASS


THREE = (TPOT, "decode.step_s.p50", "prefill.ttft_s.p50")


def test_holm_makes_many_metrics_no_easier_to_trip() -> None:
    """With three metrics p = 1/70 = 1.4 % is above 2.5 % / 3, and 1/252 of five launches is not."""
    rules = [TimedRule(metric_named(name), 0.05) for name in THREE]
    slower = [launch(seed, 0.7) for seed in (11, 12, 13, 14, 15)]
    four = judge_saved(rules, BASE, slower[:4], {})
    assert {one.verdict for one in four} == {GateVerdict.INCONCLUSIVE}
    assert all("measure 5 a side" in one.reason for one in four)
    five = judge_saved(rules, [*BASE, launch(4)], slower, {})
    assert {one.verdict for one in five} == {GateVerdict.FAIL}


def test_who_has_one_launch_is_told_how_many_would_show_something() -> None:
    rules = [TimedRule(metric_named(name), 0.05) for name in THREE]
    assert "measure 4 launches a side" in judged(BASE[:1], [launch(9)]).reason
    (one, *_) = judge_saved(rules, BASE[:1], [launch(9)], {})
    assert "measure 5 launches a side" in one.reason


def test_what_cannot_be_calibrated_is_not_sent_to_be() -> None:
    reason = judged(BASE[:1], [launch(9)], name=FRACTION).reason
    assert "calibrate" not in reason
    assert "measure 4 launches a side" in reason


def test_a_failure_names_the_change_that_it_is_beyond() -> None:
    """Two floors of 10 % are 21 %, not the 19 % of their logarithm."""
    assert judged(BASE[:1], [launch(9, 0.5)], floor=0.1).reason.startswith(
        "worse by more than 21 %"
    )


def test_a_budget_is_not_judged_by_a_single_round() -> None:
    plans = [model_phase(phase) for phase in (Phase.PREFILL, Phase.DECODE)]
    report = a_report(a_run_record(plans, rounds=1))
    (one,) = judge_budgets([GateBudget(name=TPOT, max=1e-6)], [report])
    assert one.verdict is GateVerdict.INCONCLUSIVE
    assert "a single round" in one.reason


def test_budgets_are_judged_by_the_whole_interval() -> None:
    report = BASE[0]
    tpot = report.latency.tpot_s
    assert tpot is not None
    budgets = [
        GateBudget(name=TPOT, max=tpot.high * 1.01),
        GateBudget(name=TPOT, max=tpot.low * 0.99),
        GateBudget(name=TPOT, max=tpot.point),
        GateBudget(name=FRACTION, min=0.99),
        GateBudget(name="weights.bytes", max=report.run.engine.weight_bytes),
        GateBudget(name="mixed.step_s.p50", max=1.0),
    ]
    assert [one.verdict for one in judge_budgets(budgets, [report])] == [
        GateVerdict.PASS,
        GateVerdict.FAIL,
        GateVerdict.INCONCLUSIVE,
        GateVerdict.FAIL,
        GateVerdict.PASS,
        GateVerdict.INCONCLUSIVE,
    ]


def test_a_budget_for_no_metric_is_refused() -> None:
    with pytest.raises(InputError, match="no metric 'speed'"):
        judge_budgets([GateBudget(name="speed", max=1.0)], [BASE[0]])


def test_a_contended_run_is_unstable() -> None:
    waiting = QUIET.model_copy(update={"worst_thread_fraction": 0.4})
    report = a_report(a_run_record(rounds=6, contention=[QUIET] * 3 + [waiting] * 3))
    assert unstable(BASE) is None
    reason = unstable([*BASE, report])
    assert reason is not None
    assert "50 % of the rounds" in reason
    (one,) = made_unstable([judged(BASE[:1], [report])], reason)
    assert one.verdict is GateVerdict.UNSTABLE


def test_a_metric_that_was_asked_for_and_is_not_there_is_no_pass() -> None:
    """No step of these runs mixes prefill and decode."""
    rules = [TimedRule(metric_named(name), 0.05) for name in (TPOT, "mixed.step_s.p50")]
    assert [one.metric.name for one in judge_saved(rules, BASE, BASE, {})] == [TPOT]
    there, missing = judge_saved(rules, BASE, BASE, {}, asked_for=True)
    assert there.verdict is GateVerdict.PASS
    assert (missing.metric.name, missing.verdict) == ("mixed.step_s.p50", GateVerdict.INCONCLUSIVE)
    assert "no such figure" in missing.reason
