"""What must hold before a verdict is spoken."""

import pytest

from llmprof.analysis.report import build_report
from llmprof.schema.cost import ByteTraffic, OpGroup, Phase
from llmprof.schema.run import RunRecord
from llmprof.schema.verdict import Limit, Saturation
from tests.records import QUIET, OpPlan, PhasePlan, a_run_record
from tests.verdicts import (
    caveat_codes,
    inconclusive,
    multiplies,
    phase_record,
    reads,
    small_ops,
    the_verdict,
)


def test_contended_rounds_make_it_inconclusive() -> None:
    bad = QUIET.model_copy(update={"run_queue_fraction": 0.2})
    verdict = inconclusive(
        phase_record(reads(0.009), contention=[QUIET] * 4 + [bad] * 4), "contended"
    )
    (evidence,) = (one for one in verdict.evidence if "clean rounds rejected" in one.statement)
    assert (evidence.observed, evidence.threshold, evidence.supports) == (0.5, 0.4, False)


def test_two_contended_rounds_of_eight_are_left_out_and_named() -> None:
    bad = QUIET.model_copy(update={"run_queue_fraction": 0.2})
    report = build_report(phase_record(reads(0.009), contention=[QUIET] * 6 + [bad] * 2))
    assert report.verdicts[0].limit == Limit.MEMORY
    assert report.phases[0].num_rejected_rounds == 2
    assert "contended" in caveat_codes(report)


def test_more_than_the_roof_is_over_counted_and_never_clipped() -> None:
    report = build_report(phase_record(reads(0.009, efficiency=1.3)))
    (verdict,) = report.verdicts
    assert verdict.limit == Limit.INCONCLUSIVE
    assert "over-counted" in verdict.sentence
    assert verdict.roof_fraction is not None
    assert verdict.roof_fraction.point == pytest.approx(1.3, rel=0.02)
    assert "above-roof" in caveat_codes(report)


def test_above_the_roof_within_its_interval_is_a_caveat() -> None:
    report = build_report(
        phase_record(reads(0.009, efficiency=1.02), read_bytes_per_s=[27e9, 33e9] * 4 + [27e9])
    )
    (verdict,) = report.verdicts
    assert verdict.roof_fraction is not None
    assert verdict.roof_fraction.low < 1 < verdict.roof_fraction.point
    assert (verdict.limit, verdict.saturation) == (Limit.MEMORY, Saturation.SATURATED)
    assert "above-roof" in caveat_codes(report)


def test_an_interval_that_reaches_another_class_is_said() -> None:
    verdict = the_verdict(
        phase_record(reads(0.009, efficiency=0.75), read_bytes_per_s=[27e9, 33e9] * 4 + [27e9])
    )
    assert verdict.saturation == Saturation.UNSATURATED
    assert "reaches another class" in verdict.reasons[0]


def test_an_interval_over_every_class_is_unknown() -> None:
    """The ceiling rises by half over the run and the steps do not follow it."""
    read = [24e9, 25e9, 27e9, 29e9, 31e9, 33e9, 35e9, 36e9, 36e9]
    verdict = the_verdict(phase_record(reads(0.009, efficiency=0.70), read_bytes_per_s=read))
    assert (verdict.limit, verdict.saturation) == (Limit.MEMORY, Saturation.UNKNOWN)
    assert "the interval spans every class" in verdict.sentence


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (
            phase_record(reads(0.009), read_bytes_per_s=[24e9, 36e9] * 4 + [24e9]),
            "read bandwidth readings before and after a round differ by 40 %",
        ),
        (phase_record(reads(0.009), step_noise=0.25), "spread"),
        (phase_record(reads(0.009), settled=False), "not settled"),
        (phase_record(reads(0.009), grouped_slowdown=1.3), "not those of the clean step"),
        (phase_record(reads(0.009), grouped_slowdown=0.7), "not those of the clean step"),
        (phase_record(reads(0.009), rounds=1), "1 usable clean round, 3 are needed"),
        (phase_record(reads(0.009), rounds=2), "2 usable clean rounds"),
        (phase_record(reads(0.009), grouped_rounds=2), "2 usable grouped rounds, 3 are needed"),
        (phase_record(reads(0.009), grouped_rounds=1), "rest on a single round"),
        (phase_record(multiplies(0.009, dtype="fp8")), "no matmul ceiling was measured for fp8"),
        (phase_record(reads(0.006), host_s=0.004, noise=0.05), "straddle"),
    ],
)
def test_what_cannot_be_told_is_inconclusive_with_its_reason(
    record: RunRecord, reason: str
) -> None:
    inconclusive(record, reason)


def test_a_product_above_the_ceiling_is_not_hidden_behind_another_ones_loss() -> None:
    """One group runs at 120 % of the matmul ceiling, the other at 50 %: 80 % together."""
    over = OpPlan(group=OpGroup.LM_HEAD, calls=1, flops=0.012 * 1.2e12, time_s=0.010)
    slow = multiplies(0.005, efficiency=0.5)
    verdict = inconclusive(phase_record(over, slow, phase=Phase.PREFILL), "the LM head is 120 %")
    assert verdict.roof_fraction is not None
    assert verdict.roof_fraction.high < 1
    assert "over-counted" in verdict.sentence


def test_a_product_a_little_above_the_best_shape_of_the_probe_is_no_error() -> None:
    verdict = the_verdict(
        phase_record(multiplies(0.010, efficiency=1.04), _multiplies_slowly(0.010))
    )
    assert verdict.limit == Limit.COMPUTE
    (evidence,) = (one for one in verdict.evidence if "above the matmul ceiling" in one.statement)
    assert evidence.observed == pytest.approx(1.04, rel=0.02)
    assert evidence.supports


def test_a_product_too_short_to_turn_the_answer_is_left_alone() -> None:
    tiny = OpPlan(group=OpGroup.LM_HEAD, calls=1, flops=0.0006 * 1.2e12, time_s=0.0003)
    assert the_verdict(phase_record(_multiplies_slowly(0.010), tiny)).limit == Limit.COMPUTE


def _multiplies_slowly(link_s: float) -> OpPlan:
    return OpPlan(group=OpGroup.QKV_PROJECTION, calls=1, flops=link_s * 1.2e12, time_s=link_s / 0.8)


def test_evidence_never_contradicts_its_numbers() -> None:
    """Where a statement has one number and one threshold, what it supports follows from them."""
    records = (
        phase_record(reads(0.009, efficiency=0.45)),
        phase_record(reads(0.005), multiplies(0.005)),
        phase_record(reads(0.009), grouped_slowdown=0.7),
        phase_record(reads(0.006), host_s=0.004, noise=0.05),
    )
    at_least = ("enough", "settled", "is saturated", "have intervals")
    for record in records:
        for one in the_verdict(record).evidence:
            if any(word in one.statement for word in at_least):
                assert one.supports == (one.observed >= one.threshold), one
            else:
                assert one.supports == (one.observed <= one.threshold), one


def _on_device(host_s: float, efficiency: float) -> RunRecord:
    """A device clock of 10 ms, all of it in ops that would need 10 ms x efficiency."""
    size = efficiency * 0.010 * 30e9
    op = OpPlan(
        group=OpGroup.DOWN_PROJECTION,
        calls=1,
        flops=size,
        traffic=ByteTraffic(weights=size),
        time_s=0.010,
    )
    plan = PhasePlan(phase=Phase.DECODE, ops=(op,), host_s=host_s, device_s=0.010, steps=4)
    return a_run_record((plan,))


def test_a_device_that_may_wait_for_the_host_has_no_verdict_on_its_kernels() -> None:
    """Host and device clock agree: its time may be kernels, or waiting for the next one."""
    for host_s in (0.0095, 0.0100, 0.0104):
        inconclusive(_on_device(host_s, efficiency=0.4), "host and kernels cannot be told apart")


def test_a_host_that_ran_ahead_leaves_the_kernels_to_be_judged() -> None:
    verdict = the_verdict(_on_device(0.004, efficiency=0.4))
    assert (verdict.limit, verdict.saturation) == (Limit.MEMORY, Saturation.KERNEL_LIMITED)


def test_a_saturated_link_leaves_no_room_for_waiting() -> None:
    verdict = the_verdict(_on_device(0.0100, efficiency=0.9))
    assert (verdict.limit, verdict.saturation) == (Limit.MEMORY, Saturation.SATURATED)


def test_a_host_that_is_most_of_the_step_limits_whatever_the_device_waited() -> None:
    verdict = the_verdict(_on_device(0.0400, efficiency=0.4))
    assert verdict.limit == Limit.HOST


def test_an_unsure_alpha_makes_an_unsure_answer() -> None:
    """Small ops of 5.0 us; alpha is 4 us, give or take 25 % or 60 %: is it most of their time?"""
    small = OpPlan(group=OpGroup.NORM, calls=1000, time_s=0.005)
    firm = phase_record(reads(0.001), small, alpha_s=4e-6, alpha_spread=0.25)
    assert the_verdict(firm).limit == Limit.FIXED_COST
    unsure = phase_record(reads(0.001), small, alpha_s=4e-6, alpha_spread=0.60)
    inconclusive(unsure, "straddle")


def test_warm_up_that_was_not_tested_is_no_evidence() -> None:
    report = build_report(phase_record(reads(0.009), settled=None))
    assert report.verdicts[0].limit == Limit.MEMORY
    assert not any("settled" in one.statement for one in report.verdicts[0].evidence)
    assert "not-tested" in caveat_codes(report)


def test_one_reading_per_round_has_nothing_to_disagree_with() -> None:
    record = phase_record(reads(0.009))
    rounds = tuple(one.model_copy(update={"after": None}) for one in record.rounds)
    verdict = the_verdict(record.model_copy(update={"rounds": rounds}))
    assert verdict.limit == Limit.MEMORY
    assert not any("before and after" in one.statement for one in verdict.evidence)


def _without_formula(record: RunRecord) -> RunRecord:
    (step,) = record.counted
    ops = tuple(op.model_copy(update={"missing_formula": True}) for op in step.ops)
    return record.model_copy(update={"counted": (step.model_copy(update={"ops": ops}),)})


def test_a_missing_formula_forbids_a_claim_about_compute_only() -> None:
    inconclusive(_without_formula(phase_record(multiplies(0.009))), "no FLOP formula")
    assert the_verdict(_without_formula(phase_record(reads(0.009)))).limit == Limit.MEMORY


def test_groups_without_a_cost_make_it_inconclusive() -> None:
    record = phase_record(reads(0.009), small_ops(calls=500))
    (cost,) = record.stated_costs
    partial = cost.model_copy(update={"ops": cost.ops[:1]})
    inconclusive(record.model_copy(update={"stated_costs": (partial,)}), "timed or costed")


def test_no_grouped_pass_no_ledger() -> None:
    report = build_report(phase_record(reads(0.009, efficiency=0.9), grouped_rounds=0))
    (verdict,) = report.verdicts
    assert report.ledgers == ()
    assert verdict.limit == Limit.INCONCLUSIVE
    assert "no grouped pass" in verdict.sentence
    assert verdict.limits == ()
    assert verdict.roof_fraction is not None
    assert verdict.roof_fraction.point == pytest.approx(0.9, rel=0.02)


def test_no_readings_no_judgement() -> None:
    report = build_report(phase_record(reads(0.009), readings=False))
    assert (report.roof, report.points, report.ledgers) == (None, (), ())
    assert "no ceiling was read" in report.verdicts[0].sentence
    assert report.phases[0].step_s.point == pytest.approx(0.009, rel=0.02)


def test_other_reasons_are_told_beside_a_missing_pass() -> None:
    verdict = inconclusive(
        phase_record(reads(0.009), grouped_rounds=0, settled=False), "not settled"
    )
    assert len(verdict.reasons) == 2
