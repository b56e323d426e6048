"""Metrics over pairs of rounds that took turns."""

import pytest

from llmprof.analysis.compare import compare_live
from llmprof.analysis.compare_pairs import paired_changes, round_pairs
from llmprof.analysis.report import build_report
from llmprof.schema.comparison import Arrangement, Basis, Change, Comparison, MetricChange
from llmprof.schema.confirmation import OutputComparison
from llmprof.schema.cost import Phase
from llmprof.schema.run import RunRecord
from tests.records import QUIET, a_run_record, model_phase

BUSY = QUIET.model_copy(update={"run_queue_fraction": 0.5, "worst_thread_fraction": 0.5})
ONE_PROCESS = Arrangement.ONE_PROCESS
FAST, SLOW = (
    [model_phase(Phase.PREFILL), model_phase(Phase.DECODE, efficiency=efficiency)]
    for efficiency in (0.8, 0.72)
)


def a_pair(rounds: int = 8) -> tuple[RunRecord, RunRecord]:
    """The candidate decodes 0.8 / 0.72 times as long: a ninth more; noise of 1 % in each arm."""
    return a_run_record(FAST, rounds=rounds, seed=1), a_run_record(SLOW, rounds=rounds, seed=2)


def changes(base: RunRecord, cand: RunRecord) -> dict[str, MetricChange]:
    found = paired_changes(
        build_report(base), build_report(cand), round_pairs(base, cand), ONE_PROCESS
    )
    return {one.metric.name: one for one in found}


def test_a_ninth_more_time_is_shown_in_eight_pairs() -> None:
    found = changes(*a_pair())
    step, rate = found["decode.step_s.p50"], found["decode.tokens_per_s.p50"]
    assert step.basis is Basis.PAIRED
    assert step.ratio is not None
    assert step.ratio.point == pytest.approx(0.8 / 0.72, rel=0.02)
    assert step.ratio.low > 1
    assert step.p_value == pytest.approx(2 / 2**8)  # all eight agree
    assert step.change is Change.WORSE
    assert rate.ratio is not None
    assert rate.ratio.point == pytest.approx(1 / step.ratio.point)
    assert rate.change is Change.WORSE


def test_five_pairs_show_nothing_however_far_apart_they_are() -> None:
    """2 / 2^5 = 0.0625 is above 5 %."""
    step = changes(*a_pair(rounds=5))["decode.step_s.p50"]
    assert step.p_value == pytest.approx(2 / 2**5)
    assert step.change is Change.NOT_SHOWN


def test_the_same_code_twice_shows_nothing() -> None:
    base, same = (a_run_record(FAST, rounds=8, seed=seed) for seed in (1, 2))
    timed = [one for one in changes(base, same).values() if one.basis is Basis.PAIRED]
    assert timed
    assert all(one.ratio is not None and one.ratio.low <= 1 <= one.ratio.high for one in timed)


def test_drift_that_hits_both_arms_cancels() -> None:
    """The machine slows down to a third over the rounds: the ratio does not see it."""

    def slowed(record: RunRecord) -> RunRecord:
        rounds = [
            one.model_copy(
                update={
                    "steps": tuple(
                        step.model_copy(
                            update={"duration_s": step.duration_s * (1 + 0.3 * one.index)}
                        )
                        for step in one.steps
                    )
                }
            )
            for one in record.rounds
        ]
        return record.model_copy(update={"rounds": tuple(rounds)})

    base, cand = map(slowed, a_pair())
    ratio = changes(base, cand)["decode.step_s.p50"].ratio
    assert ratio is not None
    assert ratio.point == pytest.approx(0.8 / 0.72, rel=0.02)


def _disturbed(record: RunRecord, indices: set[int]) -> RunRecord:
    rounds = [
        one.model_copy(update={"contention": BUSY}) if one.index in indices else one
        for one in record.rounds
    ]
    return record.model_copy(update={"rounds": tuple(rounds)})


@pytest.mark.parametrize(("spoiled", "used"), [({0, 3}, 6), (set(range(6)), 8)])
def test_a_pair_is_left_out_whole_while_three_others_remain(spoiled: set[int], used: int) -> None:
    base, cand = a_pair()
    pairs = round_pairs(_disturbed(base, spoiled), cand)
    assert (pairs.num_measured, pairs.num_disturbed) == (8, len(spoiled))
    assert len(pairs.baseline) == len(pairs.candidate) == used
    assert [one.index for one in pairs.baseline] == [one.index for one in pairs.candidate]


def live(rounds: int = 8) -> Comparison:
    base, cand = (build_report(record) for record in a_pair(rounds))
    return compare_live(
        base, cand, OutputComparison(same=True, tokens=8, equal_tokens=8), ONE_PROCESS
    )


def test_the_headline_names_the_pairs_and_where_the_time_went() -> None:
    assert "The difference is shown in 8 pairs (p = 0.0078)" in live().headline
    assert "most of it loss" in live().headline
    assert live(rounds=5).headline.startswith("Too few pairs (5 of at least 6)")
