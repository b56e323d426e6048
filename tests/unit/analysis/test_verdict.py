from collections.abc import Sequence

import pytest

from llmprof.analysis.report import build_report
from llmprof.schema.ceilings import ComputeCeiling
from llmprof.schema.cost import ByteTraffic, OpGroup, Phase
from llmprof.schema.ledger import Part, Side
from llmprof.schema.verdict import Limit, Saturation, Verdict
from tests.records import OpPlan
from tests.verdicts import (
    multiplies,
    phase_record,
    reads,
    small_ops,
    the_verdict,
)


def test_a_decode_that_reads_at_the_ceiling_is_saturated() -> None:
    verdict = the_verdict(phase_record(reads(0.009, efficiency=0.9), skinny_bytes_per_s=27.6e9))
    assert (verdict.limit, verdict.saturation) == (Limit.MEMORY, Saturation.SATURATED)
    assert verdict.saturation_fraction is not None
    assert verdict.roof_fraction is not None
    assert verdict.saturation_fraction.point == pytest.approx(0.9, rel=0.02)
    assert verdict.roof_fraction.point == pytest.approx(0.9, rel=0.02)
    assert verdict.parts_named == (Part.MEMORY_WEIGHTS,)
    assert "memory side: 100 %" in verdict.sentence
    assert "30.0 GB/s read ceiling of its rounds (skinny matmul kernel alone: 92 %)" in (
        verdict.sentence
    )
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
    verdict = the_verdict(phase_record(reads(0.009, efficiency)))
    assert (verdict.limit, verdict.saturation) == (Limit.MEMORY, saturation)
    assert saturation.value.replace("_", "-") in verdict.sentence


@pytest.mark.parametrize(("skinny_bytes_per_s", "supports"), [(14e9, True), (28e9, False)])
def test_the_bare_kernel_tells_whether_the_waste_is_its_own(
    skinny_bytes_per_s: float, supports: bool
) -> None:
    record = phase_record(reads(0.009, efficiency=0.45), skinny_bytes_per_s=skinny_bytes_per_s)
    evidence = the_verdict(record).evidence[-1]
    assert "skinny" in evidence.statement
    assert evidence.observed == pytest.approx(skinny_bytes_per_s / 30e9 - 0.45, abs=0.02)
    assert evidence.supports == supports == (evidence.observed <= evidence.threshold)


def test_a_wasteful_kernel_names_its_loss_as_a_part() -> None:
    verdict = the_verdict(phase_record(reads(0.009, efficiency=0.45)))
    assert verdict.parts_named == (Part.LOSS, Part.MEMORY_WEIGHTS)


def test_a_prefill_that_multiplies_is_on_the_compute_side() -> None:
    verdict = the_verdict(phase_record(multiplies(0.1, efficiency=0.85), phase=Phase.PREFILL))
    assert (verdict.limit, verdict.saturation) == (Limit.COMPUTE, Saturation.SATURATED)
    assert "1.02 TFLOP/s, 85 % of the 1.20 TFLOP/s bf16 matmul ceiling" in verdict.sentence


def test_the_ceiling_named_is_that_of_the_dtype_multiplied_in() -> None:
    record = phase_record(multiplies(0.1, dtype="fp32"))
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
    verdict = the_verdict(record.model_copy(update={"ceilings": ceilings}))
    assert "1.20 TFLOP/s, 80 % of the 1.50 TFLOP/s fp32 matmul ceiling" in verdict.sentence


def test_half_and_half_is_a_mixture() -> None:
    verdict = the_verdict(phase_record(reads(0.005), multiplies(0.005)))
    assert verdict.limit == Limit.MIXTURE
    shares = {one.limit: one.share.point for one in verdict.limits}
    assert shares[Limit.MEMORY] == pytest.approx(0.5, abs=0.01)
    assert shares[Limit.COMPUTE] == pytest.approx(0.5, abs=0.01)
    assert "is a mixture: 50 %" in verdict.sentence


def test_seventy_to_thirty_is_the_larger_one_with_the_other_named() -> None:
    verdict = the_verdict(phase_record(reads(0.003), multiplies(0.007)))
    assert verdict.limit == Limit.COMPUTE
    assert "Also 30 % memory side." in verdict.sentence
    assert set(verdict.parts_named) == {Part.COMPUTE, Part.MEMORY_WEIGHTS}


def test_a_mixture_with_the_host_speaks_of_the_one_link_in_it() -> None:
    verdict = the_verdict(phase_record(reads(0.0045, efficiency=0.9), host_s=0.005))
    assert verdict.limit == Limit.MIXTURE
    assert verdict.saturation_fraction is not None
    assert verdict.saturation_fraction.point == pytest.approx(0.9, rel=0.02)
    assert "50 % host" in verdict.sentence


def test_a_slow_host_limits() -> None:
    verdict = the_verdict(phase_record(reads(0.002), host_s=0.008))
    assert verdict.limit == Limit.HOST
    assert verdict.saturation_fraction is None
    assert verdict.saturation == Saturation.UNKNOWN
    assert "limited by the host: 80 %" in verdict.sentence
    assert "Also 20 % memory side." in verdict.sentence


def test_many_small_ops_are_limited_by_their_fixed_cost() -> None:
    verdict = the_verdict(phase_record(reads(0.0003), small_ops(calls=600)))
    assert verdict.limit == Limit.FIXED_COST
    assert verdict.parts_named[0] == Part.FIXED_COST


def test_elementwise_work_far_above_its_fixed_cost_is_not_called_fixed_cost() -> None:
    slow = OpPlan(group=OpGroup.ACTIVATION, calls=10, time_s=0.008)
    verdict = the_verdict(phase_record(reads(0.002), slow))
    assert verdict.limit == Limit.ELEMENTWISE
    assert verdict.saturation_fraction is None
    assert "limited by the elementwise work in cache: 80 %" in verdict.sentence
    assert "Also 20 % memory side." in verdict.sentence


IN_CACHE = {  # traffic of a step with 30 layers of 576 in bf16, as `costs` states it
    OpGroup.NORM: ByteTraffic(weights=69e3, activations=138e3),
    OpGroup.ROPE: ByteTraffic(activations=69e3),
    OpGroup.KV_APPEND: ByteTraffic(kv_write=23e3, activations=23e3),
    OpGroup.ACTIVATION: ByteTraffic(activations=276e3),
    OpGroup.SAMPLING: ByteTraffic(activations=98e3),
    OpGroup.EMBEDDING: ByteTraffic(weights=1.2e3, activations=1.2e3),
}


def test_work_in_cache_neither_moves_data_nor_dilutes_what_does() -> None:
    """Decode reads at the ceiling for 6 ms; six groups take 0.5 ms each without a link."""
    small = [
        OpPlan(group=group, calls=30, traffic=traffic, time_s=0.0005)
        for group, traffic in IN_CACHE.items()
    ]
    report = build_report(phase_record(reads(0.006), *small, noise=0.0))
    (verdict,), (ledger,) = report.verdicts, report.ledgers
    shares = {one.limit: one.share.point for one in verdict.limits}
    assert shares[Limit.MEMORY] == pytest.approx(2 / 3)
    assert shares[Limit.ELEMENTWISE] == pytest.approx(1 / 3)
    assert verdict.saturation == Saturation.SATURATED
    assert verdict.saturation_fraction is not None
    assert verdict.saturation_fraction.point == pytest.approx(1.0)
    assert "at 30.0 GB/s, 100 % of the 30.0 GB/s" in verdict.sentence
    assert "Also 33 % elementwise work in cache." in verdict.sentence
    sides = {entry.group: entry.side for entry in ledger.groups}
    assert sides.pop(OpGroup.DOWN_PROJECTION) == Side.MEMORY
    assert set(sides.values()) == {None}


def test_work_that_spills_the_cache_is_on_the_memory_side() -> None:
    """Activations of a long prompt: 64 MB in a call, and a cache of 32 MiB."""
    wide = OpPlan(
        group=OpGroup.ACTIVATION,
        calls=10,
        traffic=ByteTraffic(activations=640e6),
        time_s=0.025,
    )
    verdict = the_verdict(phase_record(wide, phase=Phase.PREFILL))
    assert (verdict.limit, verdict.saturation) == (Limit.MEMORY, Saturation.SATURATED)
    assert "mostly scores, copies and activations" in verdict.sentence


def _limits(verdict: Verdict) -> Sequence[Limit]:
    return [one.limit for one in verdict.limits]


def test_shares_are_all_there_largest_first() -> None:
    verdict = the_verdict(phase_record(reads(0.006), small_ops(calls=500), host_s=0.002))
    assert _limits(verdict) == [Limit.MEMORY, Limit.HOST, Limit.FIXED_COST, Limit.COMPUTE]
    assert sum(one.share.point for one in verdict.limits) == pytest.approx(1.0)


def test_the_bare_kernel_is_not_quoted_at_other_rows() -> None:
    record = phase_record(reads(0.1), phase=Phase.PREFILL)
    (cost,) = record.stated_costs
    shape = cost.shape.model_copy(
        update={"sequences": (cost.shape.sequences[0].model_copy(update={"new_tokens": 64}),)}
    )
    wide = record.model_copy(update={"stated_costs": (cost.model_copy(update={"shape": shape}),)})
    assert "skinny" in the_verdict(record).sentence
    assert "skinny" not in the_verdict(wide).sentence
