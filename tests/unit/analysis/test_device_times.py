"""A GPU's clock runs on while it waits for the host: what is told apart, and by what."""

import pytest

from llmprof.analysis.phases import round_steps
from llmprof.analysis.report import build_report
from llmprof.schema.cost import ByteTraffic, OpGroup, Phase
from llmprof.schema.ledger import Ledger, Part
from llmprof.schema.run import RunRecord
from tests.records import OpPlan, PhasePlan, a_run_record
from tests.step_plans import READ_BYTES_PER_S

KERNELS_S = 0.006


def record(host_s: float, device_s: float, *, alone_s: float | None = None) -> RunRecord:
    """Steps that read weights for 6 ms; in the grouped pass the device takes `alone_s` for them."""
    op = OpPlan(
        group=OpGroup.LM_HEAD,
        calls=1,
        traffic=ByteTraffic(weights=READ_BYTES_PER_S * KERNELS_S),
        time_s=KERNELS_S,
    )
    plan = PhasePlan(phase=Phase.DECODE, ops=(op,), host_s=host_s, device_s=device_s, steps=4)
    made = a_run_record((plan,), noise=0.0)
    if alone_s is None:
        return made
    grouped = []
    for one in made.grouped:
        steps = tuple(step.model_copy(update={"device_s": alone_s}) for step in one.steps)
        grouped.append(one.model_copy(update={"steps": steps, "held_back": True}))
    return made.model_copy(update={"grouped": tuple(grouped)})


def ledger(made: RunRecord) -> Ledger:
    (found,) = build_report(made).ledgers
    assert found.phase is Phase.DECODE
    return found


def parts(made: RunRecord) -> dict[Part, float]:
    return {one.part: one.time_s.point for one in ledger(made).parts}


def test_waits_for_the_host_are_host_time_where_kernels_ran_back_to_back() -> None:
    """10 ms per step by both clocks, 6 ms of kernels: the device waited for 4 ms."""
    found = parts(record(0.010, 0.010, alone_s=KERNELS_S))
    assert found[Part.HOST] == pytest.approx(0.004)
    assert found[Part.MEMORY_WEIGHTS] == pytest.approx(KERNELS_S)
    assert found[Part.GAPS] == pytest.approx(0.0, abs=1e-9)
    assert sum(found.values()) == pytest.approx(0.010)
    assert ledger(record(0.010, 0.010, alone_s=KERNELS_S)).grouped_scale == pytest.approx(1.0)


def test_a_rested_device_that_is_faster_gives_no_host_time() -> None:
    """The host needs 2 of 6.6 ms: nothing waited, so what is 10 % faster after a rest is the clock."""
    found = parts(record(0.002, 1.1 * KERNELS_S, alone_s=KERNELS_S))
    assert found[Part.HOST] == 0
    assert sum(found.values()) == pytest.approx(1.1 * KERNELS_S)


def test_times_that_may_hold_waits_are_not_split() -> None:
    assert parts(record(0.010, 0.010))[Part.HOST] == 0


def test_a_full_queue_is_not_the_time_to_enqueue() -> None:
    """Later steps wait for room in the queue: only the first ones tell what the host needs."""
    made = record(0.006, KERNELS_S)
    first, *others = made.rounds[0].steps
    steps = (first.model_copy(update={"duration_s": 0.002}), *others)
    one = made.rounds[0].model_copy(update={"steps": steps})
    assert round_steps([one], Phase.DECODE)[0].host_s == 0.002
