"""Known costs planted on a clock that only work moves: each must move its own part, and no other."""

import pytest

from llmprof.schema.cost import ByteTraffic, OpCost, OpGroup
from llmprof.schema.ledger import Part
from tests.fake_run import fake_piece, fake_record
from tests.fakes import FakeClock
from tests.planting.extras import Extra, TakingTurns
from tests.planting.movement import Planted, movements
from tests.step_plans import ALPHA_S, MATMUL_FLOPS_PER_S, READ_BYTES_PER_S
from tests.zoo.workload import PlantedWorkload

EXTRA_S = 0.003
CYCLES = 3


def a_cost(
    group: OpGroup, *, read_s: float = 0.0, multiply_s: float = 0.0, calls: int = 1
) -> OpCost:
    flops = multiply_s * MATMUL_FLOPS_PER_S
    return OpCost(
        name=f"extra {group.value}",
        group=group,
        calls=calls,
        compute_dtype="bf16",
        flops=flops,
        flops_dense=flops,
        flops_causal=flops,
        traffic=ByteTraffic(weights=read_s * READ_BYTES_PER_S),
    )


def planted(extra: Extra, clock: FakeClock, *, extra_takes_s: float = EXTRA_S) -> Planted:
    """Into a step of 10 ms at 90 % of the read ceiling; the extra takes `extra_takes_s`."""
    step = fake_piece(clock, 0.010, a_cost(OpGroup.DOWN_PROJECTION, read_s=0.009))
    inner = PlantedWorkload([step], device="cpu", threads=2, working_set_bytes=1 << 29)
    (cost,) = inner.stated_costs
    if extra.cost is not None:
        extra.work = lambda: clock.advance(round(extra_takes_s * 1e9))
    turns = TakingTurns(inner, cost, [extra], clock=clock)
    turns.measured_rounds_follow()
    record = fake_record(turns, clock, rounds=CYCLES * turns.arms)
    (one,) = movements(record, turns)
    return one


def moved(one: Planted) -> dict[Part, float]:
    return {movement.part: movement.median for movement in one.movements}


EXTRAS = {
    "bytes": Extra("bytes", Part.MEMORY_WEIGHTS, cost=a_cost(OpGroup.OTHER, read_s=EXTRA_S)),
    "flops": Extra("flops", Part.COMPUTE, cost=a_cost(OpGroup.OTHER, multiply_s=EXTRA_S)),
    "launches": Extra(
        "launches",
        Part.FIXED_COST,
        cost=a_cost(OpGroup.OTHER, calls=1500),
        ops=round(EXTRA_S / ALPHA_S),
    ),
    "host": Extra("host", Part.HOST, sleep_s=EXTRA_S),
}


@pytest.mark.parametrize("name", EXTRAS)
def test_a_known_cost_moves_its_part_by_itself_and_no_other(name: str) -> None:
    extra = EXTRAS[name]
    extra.taken_s.clear()
    one = planted(extra, FakeClock(per_reading_ns=1 if extra.work is None else 0))
    assert one.seconds == pytest.approx(EXTRA_S)
    assert one.holds
    for part, amount in moved(one).items():
        assert amount == pytest.approx(float(part is extra.part), abs=0.002)
    assert one.step == pytest.approx(1.0, abs=0.002)


def test_work_slower_than_its_roof_moves_the_loss_and_does_not_hold() -> None:
    """3 ms of bytes at the ceiling that took 4 ms: a quarter of it is loss."""
    extra = Extra("bytes", Part.MEMORY_WEIGHTS, cost=a_cost(OpGroup.OTHER, read_s=EXTRA_S))
    one = planted(extra, FakeClock(), extra_takes_s=0.004)
    assert not one.holds
    assert moved(one)[Part.MEMORY_WEIGHTS] == pytest.approx(0.75, abs=0.002)
    assert moved(one)[Part.LOSS] == pytest.approx(0.25, abs=0.002)


def test_work_that_is_not_counted_is_not_found() -> None:
    """The table can fail: FLOPs that nobody stated are loss, not arithmetic."""
    extra = Extra("flops", Part.COMPUTE, cost=a_cost(OpGroup.OTHER))
    assert not planted(extra, FakeClock()).holds
