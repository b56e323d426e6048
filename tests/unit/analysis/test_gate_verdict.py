import pytest

from llmprof.analysis.gate_looks import TimedRule, TimedVerdict
from llmprof.analysis.gate_metrics import CountRule, gate_rules
from llmprof.analysis.gate_verdict import (
    exit_code,
    gate_verdict,
    judge_count,
    judge_counts,
    judge_timed,
)
from llmprof.analysis.metrics import PEAK_MEMORY, TPOT, metric_named
from llmprof.errors import InputError
from llmprof.schema.gate_result import GateVerdict, Judgement, Look, Pair
from llmprof.schema.settings import GateMetric, GateSettings

OPS = metric_named("decode.ops_per_token")
PEAK = metric_named(PEAK_MEMORY)


@pytest.mark.parametrize(
    ("verdict", "on_inconclusive", "code"),
    [
        (GateVerdict.PASS, "fail", 0),
        (GateVerdict.FAIL, "warn", 1),
        (GateVerdict.INCONCLUSIVE, "warn", 0),
        (GateVerdict.INCONCLUSIVE, "fail", 3),
        (GateVerdict.UNSTABLE, "warn", 5),
    ],
)
def test_exit_codes(verdict: GateVerdict, on_inconclusive: str, code: int) -> None:
    settings = GateSettings.model_validate({"on_inconclusive": on_inconclusive})
    assert exit_code(verdict, settings) == code


def count(baseline: list[float], candidate: list[float], tolerance: float = 0.0) -> Judgement:
    judged = judge_count(CountRule(OPS, tolerance), baseline, candidate)
    assert judged is not None
    return judged


def test_one_operator_more_is_a_regression() -> None:
    assert count([304.0], [305.0]).verdict is GateVerdict.FAIL
    assert count([304.0], [304.0]).verdict is GateVerdict.PASS
    assert count([304.0], [304.0]).reason == "the same, counted"


def test_a_count_may_have_a_tolerance() -> None:
    assert count([100.0], [105.0], 0.05).verdict is GateVerdict.PASS
    assert count([100.0], [106.0], 0.05).verdict is GateVerdict.FAIL


def test_a_peak_is_worse_only_where_every_launch_says_so() -> None:
    rule = CountRule(PEAK, 0.05)
    for candidate, verdict in (
        ([200.0, 104.0], GateVerdict.PASS),
        ([200.0, 120.0], GateVerdict.FAIL),
    ):
        judged = judge_count(rule, [90.0, 100.0], candidate)
        assert judged is not None
        assert judged.verdict is verdict


def test_what_a_side_does_not_have_is_not_judged() -> None:
    assert judge_count(CountRule(OPS, 0.0), [], [1.0]) is None


@pytest.mark.parametrize(
    ("asked_for", "verdicts"),
    [(False, [GateVerdict.PASS]), (True, [GateVerdict.PASS, GateVerdict.INCONCLUSIVE])],
)
def test_a_count_that_was_asked_for_and_is_not_there_is_no_pass(
    asked_for: bool, verdicts: list[GateVerdict]
) -> None:
    rules = [CountRule(OPS, 0.0), CountRule(PEAK, 0.05)]
    sides = [{OPS.name: 304.0}], [{OPS.name: 304.0, PEAK.name: 1.0}]
    assert [one.verdict for one in judge_counts(rules, *sides, asked_for=asked_for)] == verdicts


def test_the_worst_metric_decides_and_a_shown_failure_first() -> None:
    judged = count([1.0], [1.0])
    verdicts = [GateVerdict.PASS, GateVerdict.INCONCLUSIVE, GateVerdict.UNSTABLE, GateVerdict.FAIL]
    for length, expected in enumerate(verdicts, start=1):
        some = [judged.model_copy(update={"verdict": one}) for one in verdicts[:length]]
        assert gate_verdict(some) is expected


def pair(candidate_s: float) -> Pair:
    return Pair(
        look=Look.FIRST,
        launch=0,
        candidate_first=False,
        baseline={TPOT: 0.010},
        candidate={TPOT: candidate_s},
    )


def test_pairs_that_were_taken_already_are_not_asked_for() -> None:
    """Of a change that is as large as the tolerance no number of pairs is enough: 24 of noise 1 % were."""
    pairs = [
        pair(0.0105 * (1 + spread * (-1) ** index)) for spread in (0.01, 0.1) for index in range(24)
    ]
    found = TimedVerdict(GateVerdict.INCONCLUSIVE, "neither")
    rule = TimedRule(metric_named(TPOT), 0.05)
    assert judge_timed(rule, found, pairs[:24]).pairs_needed is None
    # ln 1.1 and ln 0.9 in turn: (2.8 x 0.1025 / ln 1.05)^2 + 2
    assert judge_timed(rule, found, pairs[24:]).pairs_needed == 37


def test_figures_of_a_timed_metric_by_hand() -> None:
    pairs = [pair(0.011) for _ in range(12)]
    spoiled = pairs[0].model_copy(update={"candidate": {TPOT: 9.0}, "rejected": "steal"})
    found = TimedVerdict(GateVerdict.FAIL, "confirmed")
    judged = judge_timed(TimedRule(metric_named(TPOT), 0.05), found, [*pairs, spoiled])
    assert (judged.baseline, judged.candidate) == (0.010, 0.011)
    assert judged.ratio is not None
    assert judged.ratio.point == pytest.approx(1.1)
    assert judged.p_value == pytest.approx(2**-12)
    assert judged.minimum_detectable == pytest.approx(0.0, abs=1e-9)
    assert judged.pairs_needed is None


def test_without_valid_pairs_there_are_no_figures() -> None:
    found = TimedVerdict(GateVerdict.UNSTABLE, "spoiled")
    judged = judge_timed(TimedRule(metric_named(TPOT), 0.05), found, [])
    assert (judged.candidate, judged.ratio) == (None, None)


def test_default_metrics_are_times_counts_and_the_peak() -> None:
    rules = gate_rules(GateSettings(tolerance=0.07))
    assert [(one.metric.name, one.tolerance) for one in rules.timed] == [
        ("prefill.ttft_s.p50", 0.07),
        ("decode.tpot_s.p50", 0.07),
    ]
    tolerances = {one.metric.name: one.tolerance for one in rules.counts}
    assert tolerances["kv_cache.bytes_per_token"] == 0.0
    assert tolerances[PEAK_MEMORY] == 0.05


def test_no_time_is_allowed_no_change_at_all() -> None:
    with pytest.raises(InputError, match="tolerance of 0"):
        gate_rules(GateSettings(metrics=(GateMetric(name=TPOT, tolerance=0),)))


def test_named_metrics_replace_the_defaults() -> None:
    named = (GateMetric(name=TPOT, tolerance=0.1), GateMetric(name="weights.bytes", tolerance=0))
    rules = gate_rules(GateSettings(metrics=named))
    assert [one.tolerance for one in rules.timed] == [0.1]
    assert [one.metric.name for one in rules.counts] == ["weights.bytes"]


def test_a_metric_named_twice_or_unknown_is_refused() -> None:
    one = GateMetric(name=TPOT, tolerance=0.1)
    with pytest.raises(InputError, match="twice"):
        gate_rules(GateSettings(metrics=(one, one)))
    with pytest.raises(InputError, match="no metric"):
        gate_rules(GateSettings(metrics=(GateMetric(name="speed", tolerance=0.1),)))
