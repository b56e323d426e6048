import pytest

from llmprof.analysis.rates import (
    Rates,
    distinct_readings,
    dtypes_without_ceiling,
    median_disagreement,
    median_rates,
    round_rates,
)
from llmprof.analysis.roof import build_roof, skinny_fraction
from llmprof.schema.ceilings import CeilingReading, ComputeCeiling
from llmprof.schema.cost import OpGroup, Phase
from tests.records import OpPlan, PhasePlan, a_run_record, stated_cost

RECORD = a_run_record(rounds=3, read_bytes_per_s=[20e9, 40e9, 30e9, 24e9])


def _read(reading: CeilingReading) -> float:
    return reading.read_bytes_per_s


def _ceiling(dtype: str, flops_per_s: float) -> ComputeCeiling:
    return ComputeCeiling(
        dtype=dtype,
        m=1024,
        n=1024,
        k=1024,
        flops_per_s=flops_per_s,
        median_flops_per_s=flops_per_s,
        spread=0.0,
        kernel="torch.matmul",
    )


def test_a_round_is_judged_by_the_readings_beside_it() -> None:
    rates = round_rates(RECORD.rounds[0], RECORD.ceilings)
    assert rates is not None
    assert [one.read_bytes_per_s for one in rates.variants] == [30e9, 20e9, 40e9]


def test_a_reading_between_two_rounds_counts_once() -> None:
    assert [_read(one) for one in distinct_readings(RECORD.rounds)] == [20e9, 40e9, 30e9, 24e9]


def test_the_printed_roof_is_the_one_judged_by() -> None:
    """Means beside the rounds: 30, 35 and 27 GB/s."""
    rates = median_rates(RECORD.rounds, RECORD.ceilings)
    roof = build_roof(RECORD.rounds, RECORD.ceilings)
    assert rates is not None
    assert roof is not None
    assert rates.read_bytes_per_s == roof.read_bytes_per_s.point == 30e9
    assert (roof.read_bytes_per_s.low, roof.read_bytes_per_s.high) == (20e9, 40e9)
    assert roof.ridge_flops_per_byte == 40.0
    assert (roof.skinny_rows, roof.read_level) == (1, "DRAM")


def test_the_fixed_cost_is_the_median_of_what_was_read_beside_the_rounds() -> None:
    """Two rounds between readings of 1, 3 and 4 us: 2 and 3.5; one reading without it, and none is known."""
    alphas = (1e-6, 3e-6, 4e-6)
    rounds = [
        one.model_copy(
            update={
                "before": one.before and one.before.model_copy(update={"alpha_s": before}),
                "after": one.after and one.after.model_copy(update={"alpha_s": after}),
            }
        )
        for one, before, after in zip(RECORD.rounds, alphas, alphas[1:], strict=False)
    ]
    rates = median_rates(rounds, RECORD.ceilings)
    assert rates is not None
    assert rates.alpha_s == pytest.approx(2.75e-6)
    last = rounds[1].model_copy(
        update={"after": rounds[1].before and rounds[1].before.model_copy(update={"alpha_s": None})}
    )
    unknown = median_rates([rounds[0], last], RECORD.ceilings)
    assert unknown is not None
    assert unknown.alpha_s is None


def test_disagreement_is_the_median_over_rounds() -> None:
    # 20/40 -> 2/3, 40/30 -> 2/7, 30/24 -> 2/9
    assert median_disagreement(RECORD.rounds, _read) == pytest.approx(2 / 7)


def test_without_readings_there_is_no_roof() -> None:
    record = a_run_record(readings=False)
    assert build_roof(record.rounds, record.ceilings) is None
    assert median_rates(record.rounds, record.ceilings) is None
    assert round_rates(record.rounds[0], record.ceilings) is None
    assert median_disagreement(record.rounds, _read) is None


def test_an_interrupted_round_is_judged_by_the_one_reading_that_it_has() -> None:
    cut = RECORD.rounds[0].model_copy(update={"after": None})
    rates = round_rates(cut, RECORD.ceilings)
    assert rates is not None
    assert rates.mean.read_bytes_per_s == 20e9


def test_the_skinny_kernel_is_compared_reading_by_reading() -> None:
    record = a_run_record(
        rounds=3, read_bytes_per_s=[20e9, 40e9, 30e9, 24e9], skinny_bytes_per_s=12e9
    )
    fraction = skinny_fraction(record.rounds, rows=1)
    assert fraction is not None
    assert fraction.point == pytest.approx((12 / 30 + 12 / 24) / 2)
    assert skinny_fraction(record.rounds, rows=8) is None


def test_other_dtypes_take_their_best_cached_ceiling() -> None:
    ceilings = RECORD.ceilings.model_copy(
        update={"compute": (_ceiling("fp32", 1e11), _ceiling("fp32", 2e11), _ceiling("bf16", 9e12))}
    )
    rates = median_rates(RECORD.rounds, ceilings)
    assert rates is not None
    assert rates.flops_per_s("fp32") == 2e11
    assert rates.flops_per_s("bf16") == 1.2e12  # the live reading goes before the cached one


def test_a_dtype_that_was_never_measured_is_named() -> None:
    rates = Rates(1e10, 1e12, "bf16", {"fp32": 1e11})
    ops = (
        OpPlan(group=OpGroup.OTHER, time_s=1.0, flops=1.0, dtype="fp8"),
        OpPlan(group=OpGroup.NORM, time_s=1.0, flops=0.0, dtype="fp16"),
        OpPlan(group=OpGroup.LM_HEAD, time_s=1.0, flops=1.0, dtype="fp32"),
    )
    cost = stated_cost(PhasePlan(phase=Phase.DECODE, ops=ops))
    assert dtypes_without_ceiling(cost, rates) == ("fp8",)
