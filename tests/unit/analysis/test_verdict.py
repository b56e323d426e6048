from collections.abc import Sequence

import pytest

from llmprof.analysis.report import build_report
from llmprof.schema.ceilings import ComputeCeiling
from llmprof.schema.cost import ByteTraffic, OpGroup, Phase
from llmprof.schema.ledger import Part
from llmprof.schema.report import Report
from llmprof.schema.run import RunRecord
from llmprof.schema.verdict import Limit, Saturation, Verdict
from tests.records import QUIET, OpPlan, PhasePlan, a_run_record


def _reads(link_s: float, efficiency: float = 1.0, calls: int = 1) -> OpPlan:
    """An op that reads weights for `link_s` at 30 GB/s and takes 1 / efficiency as long."""
    size = link_s * 30e9
    return OpPlan(
        group=OpGroup.DOWN_PROJECTION,
        calls=calls,
        flops=size,
        traffic=ByteTraffic(weights=size),
        time_s=link_s / efficiency,
    )


def _multiplies(link_s: float, efficiency: float = 1.0, dtype: str = "bf16") -> OpPlan:
    """An op that multiplies for `link_s` at 1.2 TFLOP/s and takes 1 / efficiency as long."""
    return OpPlan(
        group=OpGroup.GATE_UP_PROJECTION,
        calls=1,
        flops=link_s * 1.2e12,
        traffic=ByteTraffic(weights=link_s * 1e9),
        time_s=link_s / efficiency,
        dtype=dtype,
    )


def _small(calls: int) -> OpPlan:
    return OpPlan(group=OpGroup.NORM, calls=calls, time_s=calls * 2.2e-6)


def _record(*ops: OpPlan, phase: Phase = Phase.DECODE, **options: object) -> RunRecord:
    plan_options = {
        name: options.pop(name) for name in ("host_s", "grouped_slowdown") if name in options
    }
    plan = PhasePlan(phase=phase, ops=ops, steps=4, **plan_options)  # type: ignore[arg-type]
    return a_run_record((plan,), **options)  # type: ignore[arg-type]


def _verdict(record: RunRecord) -> Verdict:
    (verdict,) = build_report(record).verdicts
    return verdict


def _inconclusive(record: RunRecord, reason: str) -> Verdict:
    verdict = _verdict(record)
    assert verdict.limit == Limit.INCONCLUSIVE
    assert verdict.saturation == Saturation.UNKNOWN
    assert any(reason in one for one in verdict.reasons), verdict.reasons
    assert "is inconclusive" in verdict.sentence
    return verdict


def _codes(report: Report) -> set[str]:
    return {caveat.code for caveat in report.caveats}


def test_a_decode_that_reads_at_the_ceiling_is_saturated() -> None:
    verdict = _verdict(_record(_reads(0.009, efficiency=0.9), skinny_bytes_per_s=27.6e9))
    assert (verdict.limit, verdict.saturation) == (Limit.MEMORY, Saturation.SATURATED)
    assert verdict.saturation_fraction is not None
    assert verdict.roof_fraction is not None
    assert verdict.saturation_fraction.point == pytest.approx(0.9, rel=0.02)
    assert verdict.roof_fraction.point == pytest.approx(0.9, rel=0.02)
    assert verdict.parts_named == (Part.MEMORY_WEIGHTS,)
    assert "memory side: 100 %" in verdict.sentence
    assert "30.0 GB/s read ceiling (skinny matmul kernel alone: 92 %)" in verdict.sentence
    assert verdict.sentence.endswith("saturated.")
    assert all(evidence.supports for evidence in verdict.evidence)


@pytest.mark.parametrize(
    ("efficiency", "saturation"),
    [
        (0.95, Saturation.SATURATED),
        (0.70, Saturation.UNSATURATED),
        (0.45, Saturation.KERNEL_LIMITED),
    ],
)
def test_the_second_answer_says_how_busy_the_link_is(
    efficiency: float, saturation: Saturation
) -> None:
    verdict = _verdict(_record(_reads(0.009, efficiency)))
    assert (verdict.limit, verdict.saturation) == (Limit.MEMORY, saturation)
    assert saturation.value.replace("_", "-") in verdict.sentence


@pytest.mark.parametrize(("skinny_bytes_per_s", "supports"), [(14e9, True), (28e9, False)])
def test_the_bare_kernel_tells_whether_the_waste_is_its_own(
    skinny_bytes_per_s: float, supports: bool
) -> None:
    record = _record(_reads(0.009, efficiency=0.45), skinny_bytes_per_s=skinny_bytes_per_s)
    evidence = _verdict(record).evidence[-1]
    assert "skinny" in evidence.statement
    assert evidence.observed == pytest.approx(skinny_bytes_per_s / 30e9)
    assert evidence.supports == supports


def test_a_wasteful_kernel_names_its_loss_as_a_part() -> None:
    verdict = _verdict(_record(_reads(0.009, efficiency=0.45)))
    assert verdict.parts_named == (Part.LOSS, Part.MEMORY_WEIGHTS)


def test_a_prefill_that_multiplies_is_on_the_compute_side() -> None:
    verdict = _verdict(_record(_multiplies(0.1, efficiency=0.85), phase=Phase.PREFILL))
    assert (verdict.limit, verdict.saturation) == (Limit.COMPUTE, Saturation.SATURATED)
    assert "1.02 TFLOP/s, 85 % of the 1.20 TFLOP/s bf16 matmul ceiling" in verdict.sentence


def test_the_ceiling_named_is_that_of_the_dtype_multiplied_in() -> None:
    record = _record(_multiplies(0.1, dtype="fp32"))
    cached = ComputeCeiling(
        dtype="fp32",
        m=1024,
        n=1024,
        k=1024,
        flops_per_s=1.5e12,
        median_flops_per_s=1.5e12,
        spread=0.0,
        kernel="torch.matmul",
    )
    ceilings = record.ceilings.model_copy(update={"compute": (cached,)})
    verdict = _verdict(record.model_copy(update={"ceilings": ceilings}))
    assert "1.20 TFLOP/s, 80 % of the 1.50 TFLOP/s fp32 matmul ceiling" in verdict.sentence


def test_half_and_half_is_a_mixture() -> None:
    verdict = _verdict(_record(_reads(0.005), _multiplies(0.005)))
    assert verdict.limit == Limit.MIXTURE
    shares = {one.limit: one.share.point for one in verdict.limits}
    assert shares[Limit.MEMORY] == pytest.approx(0.5, abs=0.01)
    assert shares[Limit.COMPUTE] == pytest.approx(0.5, abs=0.01)
    assert "is a mixture: 50 %" in verdict.sentence


def test_seventy_to_thirty_is_the_larger_one_with_the_other_named() -> None:
    verdict = _verdict(_record(_reads(0.003), _multiplies(0.007)))
    assert verdict.limit == Limit.COMPUTE
    assert "Also 30 % memory side." in verdict.sentence
    assert set(verdict.parts_named) == {Part.COMPUTE, Part.MEMORY_WEIGHTS}


def test_a_mixture_with_the_host_speaks_of_the_one_link_in_it() -> None:
    verdict = _verdict(_record(_reads(0.0045, efficiency=0.9), host_s=0.005))
    assert verdict.limit == Limit.MIXTURE
    assert verdict.saturation_fraction is not None
    assert verdict.saturation_fraction.point == pytest.approx(0.9, rel=0.02)
    assert "50 % host" in verdict.sentence


def test_a_slow_host_limits() -> None:
    verdict = _verdict(_record(_reads(0.002), host_s=0.008))
    assert verdict.limit == Limit.HOST
    assert verdict.saturation_fraction is None
    assert verdict.saturation == Saturation.UNKNOWN
    assert "limited by the host: 80 %" in verdict.sentence
    assert "Also 20 % memory side." in verdict.sentence


def test_many_small_ops_are_limited_by_their_fixed_cost() -> None:
    verdict = _verdict(_record(_reads(0.0003), _small(calls=600)))
    assert verdict.limit == Limit.FIXED_COST
    assert verdict.parts_named[0] == Part.FIXED_COST


def test_elementwise_work_far_above_its_fixed_cost_is_not_called_fixed_cost() -> None:
    slow = OpPlan(group=OpGroup.ACTIVATION, calls=10, time_s=0.008)
    verdict = _verdict(_record(_reads(0.002), slow))
    assert verdict.limit == Limit.MEMORY
    assert verdict.saturation == Saturation.KERNEL_LIMITED


def test_contended_rounds_make_it_inconclusive() -> None:
    bad = QUIET.model_copy(update={"run_queue_fraction": 0.2})
    verdict = _inconclusive(_record(_reads(0.009), contention=[QUIET] * 5 + [bad] * 3), "contended")
    (evidence,) = (one for one in verdict.evidence if "clean rounds rejected" in one.statement)
    assert (evidence.observed, evidence.threshold, evidence.supports) == (0.375, 0.3, False)


def test_two_contended_rounds_of_eight_are_left_out_and_named() -> None:
    bad = QUIET.model_copy(update={"run_queue_fraction": 0.2})
    report = build_report(_record(_reads(0.009), contention=[QUIET] * 6 + [bad] * 2))
    assert report.verdicts[0].limit == Limit.MEMORY
    assert report.phases[0].num_rejected_rounds == 2
    assert "contended" in _codes(report)


def test_more_than_the_roof_is_over_counted_and_never_clipped() -> None:
    report = build_report(_record(_reads(0.009, efficiency=1.3)))
    (verdict,) = report.verdicts
    assert verdict.limit == Limit.INCONCLUSIVE
    assert "over-counted" in verdict.sentence
    assert verdict.roof_fraction is not None
    assert verdict.roof_fraction.point == pytest.approx(1.3, rel=0.02)
    assert "above-roof" in _codes(report)


def test_above_the_roof_within_its_interval_is_a_caveat() -> None:
    report = build_report(
        _record(_reads(0.009, efficiency=1.02), read_bytes_per_s=[27e9, 33e9] * 4 + [27e9])
    )
    (verdict,) = report.verdicts
    assert verdict.roof_fraction is not None
    assert verdict.roof_fraction.low < 1 < verdict.roof_fraction.point
    assert (verdict.limit, verdict.saturation) == (Limit.MEMORY, Saturation.SATURATED)
    assert "above-roof" in _codes(report)


def test_an_interval_that_reaches_another_class_is_said() -> None:
    verdict = _verdict(
        _record(_reads(0.009, efficiency=0.75), read_bytes_per_s=[27e9, 33e9] * 4 + [27e9])
    )
    assert verdict.saturation == Saturation.UNSATURATED
    assert "reaches another class" in verdict.reasons[0]


def test_an_interval_over_every_class_is_unknown() -> None:
    """The ceiling rises by half over the run and the steps do not follow it."""
    read = [24e9, 25e9, 27e9, 29e9, 31e9, 33e9, 35e9, 36e9, 36e9]
    verdict = _verdict(_record(_reads(0.009, efficiency=0.70), read_bytes_per_s=read))
    assert (verdict.limit, verdict.saturation) == (Limit.MEMORY, Saturation.UNKNOWN)
    assert "the interval spans every class" in verdict.sentence


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (
            _record(_reads(0.009), read_bytes_per_s=[24e9, 36e9] * 4 + [24e9]),
            "read bandwidth readings before and after a round differ by 40 %",
        ),
        (_record(_reads(0.009), noise=0.25), "spread"),
        (_record(_reads(0.009), settled=False), "not settled"),
        (_record(_reads(0.009), grouped_slowdown=1.3), "not those of the clean step"),
        (_record(_reads(0.009), grouped_slowdown=0.7), "not those of the clean step"),
        (_record(_reads(0.009), rounds=1), "1 usable round, 3 are needed"),
        (_record(_reads(0.009), rounds=2), "2 usable rounds"),
        (_record(_multiplies(0.009, dtype="fp8")), "no matmul ceiling was measured for fp8"),
        (_record(_reads(0.006), host_s=0.004, noise=0.05), "straddle"),
    ],
)
def test_what_cannot_be_told_is_inconclusive_with_its_reason(
    record: RunRecord, reason: str
) -> None:
    _inconclusive(record, reason)


def test_one_reading_per_round_has_nothing_to_disagree_with() -> None:
    record = _record(_reads(0.009))
    rounds = tuple(one.model_copy(update={"after": None}) for one in record.rounds)
    verdict = _verdict(record.model_copy(update={"rounds": rounds}))
    assert verdict.limit == Limit.MEMORY
    assert not any("before and after" in one.statement for one in verdict.evidence)


def _without_formula(record: RunRecord) -> RunRecord:
    (step,) = record.counted
    ops = tuple(op.model_copy(update={"missing_formula": True}) for op in step.ops)
    return record.model_copy(update={"counted": (step.model_copy(update={"ops": ops}),)})


def test_a_missing_formula_forbids_a_claim_about_compute_only() -> None:
    _inconclusive(_without_formula(_record(_multiplies(0.009))), "no FLOP formula")
    assert _verdict(_without_formula(_record(_reads(0.009)))).limit == Limit.MEMORY


def test_groups_without_a_cost_make_it_inconclusive() -> None:
    record = _record(_reads(0.009), _small(calls=500))
    (cost,) = record.stated_costs
    partial = cost.model_copy(update={"ops": cost.ops[:1]})
    _inconclusive(record.model_copy(update={"stated_costs": (partial,)}), "timed or costed")


def test_no_grouped_pass_no_ledger() -> None:
    report = build_report(_record(_reads(0.009, efficiency=0.9), grouped_rounds=0))
    (verdict,) = report.verdicts
    assert report.ledgers == ()
    assert verdict.limit == Limit.INCONCLUSIVE
    assert "no grouped pass" in verdict.sentence
    assert verdict.limits == ()
    assert verdict.roof_fraction is not None
    assert verdict.roof_fraction.point == pytest.approx(0.9, rel=0.02)


def test_no_readings_no_judgement() -> None:
    report = build_report(_record(_reads(0.009), readings=False))
    assert (report.roof, report.points, report.ledgers) == (None, (), ())
    assert "no ceiling was read" in report.verdicts[0].sentence
    assert report.phases[0].step_s.point == pytest.approx(0.009, rel=0.02)


def test_other_reasons_are_told_beside_a_missing_pass() -> None:
    verdict = _inconclusive(_record(_reads(0.009), grouped_rounds=0, settled=False), "not settled")
    assert len(verdict.reasons) == 2


def _limits(verdict: Verdict) -> Sequence[Limit]:
    return [one.limit for one in verdict.limits]


def test_shares_are_all_there_largest_first() -> None:
    verdict = _verdict(_record(_reads(0.006), _small(calls=500), host_s=0.002))
    assert _limits(verdict) == [Limit.MEMORY, Limit.HOST, Limit.FIXED_COST, Limit.COMPUTE]
    assert sum(one.share.point for one in verdict.limits) == pytest.approx(1.0)


def test_the_bare_kernel_is_not_quoted_at_other_rows() -> None:
    record = _record(_reads(0.1), phase=Phase.PREFILL)
    (cost,) = record.stated_costs
    shape = cost.shape.model_copy(
        update={"sequences": (cost.shape.sequences[0].model_copy(update={"new_tokens": 64}),)}
    )
    wide = record.model_copy(update={"stated_costs": (cost.model_copy(update={"shape": shape}),)})
    assert "skinny" in _verdict(record).sentence
    assert "skinny" not in _verdict(wide).sentence
