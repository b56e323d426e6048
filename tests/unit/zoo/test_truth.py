"""The zoo's own logic, on a clock that only the planted work moves."""

import pytest

from llmprof.analysis.report import build_report
from llmprof.schema.cost import ByteTraffic, OpCost, OpGroup
from llmprof.schema.report import Report
from llmprof.schema.run import RunRecord
from llmprof.schema.verdict import Limit, Saturation
from tests.fake_run import fake_piece, fake_record
from tests.fakes import FakeClock
from tests.step_plans import ALPHA_S, MATMUL_FLOPS_PER_S, READ_BYTES_PER_S
from tests.zoo.pieces import Piece
from tests.zoo.simulated import FOREIGN, THROTTLED, throttled, with_foreign_process
from tests.zoo.truth import Outcome, Truth, grade
from tests.zoo.workload import PlantedWorkload


def reads(seconds: float) -> OpCost:
    return cost(OpGroup.DOWN_PROJECTION, ByteTraffic(weights=seconds * READ_BYTES_PER_S))


def multiplies(seconds: float) -> OpCost:
    return cost(OpGroup.GATE_UP_PROJECTION, ByteTraffic(), flops=seconds * MATMUL_FLOPS_PER_S)


def cost(group: OpGroup, traffic: ByteTraffic, *, flops: float = 0.0, calls: int = 1) -> OpCost:
    return OpCost(
        name=group.value,
        group=group,
        calls=calls,
        compute_dtype="bf16",
        flops=flops,
        flops_dense=flops,
        flops_causal=flops,
        traffic=traffic,
    )


def planted(clock: FakeClock, *pieces: Piece, tiny: tuple[OpCost, ...] = ()) -> RunRecord:
    workload = PlantedWorkload(pieces, device="cpu", threads=2, working_set_bytes=1 << 29)
    return fake_record(workload, clock, tiny_ops=tiny)


def mixture() -> Report:
    """70 % memory at its roof, 30 % compute at half of it."""
    clock = FakeClock()
    return build_report(
        planted(
            clock,
            fake_piece(clock, 0.007, reads(0.007)),
            fake_piece(clock, 0.003, multiplies(0.0015)),
        )
    )


SHARES = {Limit.MEMORY: 0.7, Limit.COMPUTE: 0.3}


def test_planted_shares_are_found() -> None:
    truth = Truth("", Limit.MEMORY, shares=SHARES, saturation=Saturation.SATURATED)
    assert grade(truth, mixture()).outcome is Outcome.RIGHT


def test_a_sleep_outside_every_group_is_the_hosts() -> None:
    clock = FakeClock()
    report = build_report(
        planted(clock, fake_piece(clock, 0.008), fake_piece(clock, 0.002, reads(0.002)))
    )
    truth = Truth("", Limit.HOST, shares={Limit.HOST: 0.8, Limit.MEMORY: 0.2})
    assert grade(truth, report).outcome is Outcome.RIGHT


def test_ops_that_take_hardly_more_than_alpha_are_fixed_cost() -> None:
    clock = FakeClock()
    tiny = cost(OpGroup.NORM, ByteTraffic(activations=4e3 * 400), calls=400)
    report = build_report(
        planted(clock, fake_piece(clock, 400 * 1.2 * ALPHA_S, tiny), tiny=(tiny,))
    )
    assert grade(Truth("", Limit.FIXED_COST), report).outcome is Outcome.RIGHT


def test_a_product_at_half_of_its_roof_is_kernel_limited() -> None:
    clock = FakeClock()
    report = build_report(planted(clock, fake_piece(clock, 0.010, multiplies(0.005))))
    truth = Truth("", Limit.COMPUTE, saturation=Saturation.KERNEL_LIMITED)
    assert grade(truth, report).outcome is Outcome.RIGHT
    saturated = Truth("", Limit.COMPUTE, saturation=Saturation.SATURATED)
    assert grade(saturated, report).outcome is Outcome.WRONG


@pytest.mark.parametrize(
    ("truth", "why"),
    [
        (Truth("", Limit.COMPUTE), "says memory"),
        (Truth("", Limit.MEMORY, shares={Limit.MEMORY: 0.76}), "memory off by -6.0 points"),
        (Truth("", Limit.MEMORY, shares={Limit.HOST: 0.1}), "host off by -10.0 points"),
        (Truth("", Limit.MEMORY, level="L2"), "judged by DRAM"),
        (Truth("", Limit.MEMORY, caveats=("preempted",)), "no caveat preempted"),
        (Truth("", refusal="another process"), "judged all the same"),
    ],
)
def test_a_verdict_that_says_otherwise_is_wrong(truth: Truth, why: str) -> None:
    one = grade(truth, mixture())
    assert (one.outcome, one.why) == (Outcome.WRONG, why)


@pytest.mark.parametrize(
    ("truth", "plant"), [(THROTTLED, throttled), (FOREIGN, with_foreign_process)]
)
def test_what_sensors_say_forbids_a_verdict(truth: Truth, plant: object) -> None:
    clock = FakeClock()
    record = planted(clock, fake_piece(clock, 0.010, reads(0.009)))
    assert callable(plant)
    assert grade(truth, build_report(record)).outcome is Outcome.WRONG
    assert grade(truth, build_report(plant(record))).outcome is Outcome.RIGHT


def test_a_refusal_for_another_reason_is_wrong() -> None:
    clock = FakeClock()
    record = planted(clock, fake_piece(clock, 0.010, reads(0.009)))
    other = Truth("", refusal="the clock was lower")
    one = grade(other, build_report(with_foreign_process(record)))
    assert one.outcome is Outcome.WRONG
    assert "for another reason" in one.why


def test_no_verdict_where_one_was_due_is_inconclusive() -> None:
    clock = FakeClock()
    record = planted(clock, fake_piece(clock, 0.010, reads(0.009)))
    report = build_report(with_foreign_process(record))
    assert grade(Truth("", Limit.MEMORY), report).outcome is Outcome.INCONCLUSIVE
