import pytest

from llmprof.analysis.report import build_report
from llmprof.schema.cost import ByteTraffic, OpGroup, Phase
from llmprof.schema.ledger import GroupEntry, Ledger, Part, Side
from llmprof.schema.run import RunRecord
from tests.records import OpPlan, PhasePlan, a_run_record, model_phase

WEIGHTS = OpPlan(  # 9 ms of reading at 30 GB/s, 0.06 ms of fixed cost, 0.94 ms of loss
    group=OpGroup.DOWN_PROJECTION,
    calls=30,
    flops=270e6,
    traffic=ByteTraffic(weights=270e6),
    time_s=0.010,
)


def _plan(*ops: OpPlan, **changes: float) -> PhasePlan:
    return PhasePlan(phase=Phase.DECODE, ops=ops, **changes)  # type: ignore[arg-type]


def _ledger(record: RunRecord, phase: Phase = Phase.DECODE) -> Ledger:
    (ledger,) = (one for one in build_report(record).ledgers if one.phase == phase)
    return ledger


def _parts(ledger: Ledger) -> dict[Part, float]:
    return {part.part: part.time_s.point for part in ledger.parts}


def _group(ledger: Ledger, group: OpGroup) -> GroupEntry:
    (entry,) = (one for one in ledger.groups if one.group == group)
    return entry


def test_a_step_of_known_parts_is_split_into_them() -> None:
    ledger = _ledger(a_run_record((_plan(WEIGHTS, host_s=0.002),), noise=0.0))
    assert _parts(ledger) == {
        Part.MEMORY_WEIGHTS: pytest.approx(0.009),
        Part.MEMORY_KV: 0.0,
        Part.MEMORY_OTHER: 0.0,
        Part.COMPUTE: 0.0,
        Part.FIXED_COST: pytest.approx(60e-6),
        Part.LOSS: pytest.approx(0.94e-3),
        Part.HOST: pytest.approx(0.002),
    }
    assert ledger.step_s.point == pytest.approx(0.012)
    shares = {part.part: part.share for part in ledger.parts}
    assert shares[Part.MEMORY_WEIGHTS] == pytest.approx(0.75)


@pytest.mark.parametrize("phase", [Phase.PREFILL, Phase.DECODE])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_parts_sum_to_the_step(phase: Phase, noise: float) -> None:
    ledger = _ledger(a_run_record(noise=noise), phase)
    assert sum(_parts(ledger).values()) == pytest.approx(ledger.step_s.point, rel=1e-12)
    assert sum(part.share for part in ledger.parts) == pytest.approx(1.0)
    groups_s = sum(group.time_s.point for group in ledger.groups)
    assert groups_s + _parts(ledger)[Part.HOST] == pytest.approx(ledger.step_s.point)


@pytest.mark.parametrize("phase", [Phase.PREFILL, Phase.DECODE])
@pytest.mark.parametrize("grouped_slowdown", [1.0, 1.1])
def test_a_sleeping_host_appears_as_host_and_nowhere_else(
    phase: Phase, grouped_slowdown: float
) -> None:
    """5 ms per step in both passes, with the memory drifting by 10 % between the passes."""
    sleep_s = 0.005
    ledgers = []
    for host_s in (0.0003, 0.0003 + sleep_s):
        plan = model_phase(phase, host_s=host_s)
        changed = {name: getattr(plan, name) for name in ("phase", "ops", "host_s", "steps")}
        slowed = PhasePlan(**changed, grouped_slowdown=grouped_slowdown)
        ledgers.append(_ledger(a_run_record((slowed,), noise=0.01, seed=7), phase))
    without, with_sleep = (_parts(ledger) for ledger in ledgers)
    moved = {part: with_sleep[part] - without[part] for part in without}
    assert moved.pop(Part.HOST) == pytest.approx(sleep_s, rel=0.10)
    assert max(abs(change) for change in moved.values()) < 0.05 * sleep_s


def test_groups_are_scaled_to_the_clean_step_and_the_host_is_not() -> None:
    plan = _plan(WEIGHTS, host_s=0.004, grouped_slowdown=1.2)
    ledger = _ledger(a_run_record((plan,), noise=0.0))
    assert _group(ledger, OpGroup.DOWN_PROJECTION).time_s.point == pytest.approx(0.010)
    assert _parts(ledger)[Part.HOST] == pytest.approx(0.004)
    assert ledger.grouped_scale == pytest.approx(0.014 / 0.016)


def test_a_loss_below_zero_is_shown() -> None:
    fast = OpPlan(
        group=OpGroup.LM_HEAD, calls=1, traffic=ByteTraffic(weights=90e6), time_s=0.002, flops=90e6
    )
    report = build_report(a_run_record((_plan(WEIGHTS, fast),), noise=0.0))
    entry = _group(report.ledgers[0], OpGroup.LM_HEAD)
    assert entry.loss_s.point == pytest.approx(0.002 - 0.003 - 2e-6)
    assert _parts(report.ledgers[0])[Part.LOSS] == pytest.approx(0.94e-3 - 1.002e-3)
    (caveat,) = (one for one in report.caveats if one.code == "above-roof")
    assert "LM head" in caveat.message


def test_the_maximum_is_taken_per_op_not_per_group() -> None:
    """Standard attention: scores and values compute, the softmax between them moves bytes."""
    ops = (
        OpPlan(
            group=OpGroup.ATTENTION, name="attention.scores", calls=1, flops=1.2e9, time_s=0.0012
        ),
        OpPlan(
            group=OpGroup.ATTENTION,
            name="attention.softmax",
            calls=1,
            traffic=ByteTraffic(scores=60e6),
            time_s=0.0024,
        ),
    )
    entry = _group(_ledger(a_run_record((_plan(*ops),), noise=0.0)), OpGroup.ATTENTION)
    assert entry.memory_s == pytest.approx(0.002)
    assert entry.compute_s == pytest.approx(0.001)
    assert entry.fixed_cost_s == pytest.approx(4e-6)
    assert entry.roof_s == pytest.approx(0.003 + 4e-6)
    assert entry.side == Side.MEMORY
    assert entry.traffic.scores == entry.roof_bytes == 60e6


def test_the_shorter_link_is_hidden_under_the_longer() -> None:
    product = OpPlan(
        group=OpGroup.LM_HEAD,
        calls=1,
        flops=12e9,  # 10 ms
        traffic=ByteTraffic(weights=60e6),  # 2 ms
        time_s=0.011,
    )
    memory, arithmetic = sorted(
        _ledger(a_run_record((_plan(WEIGHTS, product),), noise=0.0)).hidden,
        key=lambda term: -term.time_s,
    )
    assert (memory.name, memory.under) == ("memory traffic", "arithmetic")
    assert memory.time_s == pytest.approx(0.002)
    assert (arithmetic.name, arithmetic.under) == ("arithmetic", "memory traffic")
    assert arithmetic.time_s == pytest.approx(270e6 / 1.2e12)


def test_sensitivities_give_what_one_per_cent_less_is_worth() -> None:
    ledger = _ledger(a_run_record((_plan(WEIGHTS, host_s=0.002),), noise=0.0))
    worth = {one.of: one.seconds_per_percent for one in ledger.sensitivities}
    assert worth["weight bytes"] == pytest.approx(0.01 * (0.010 - 60e-6))  # the kernel's loss too
    assert worth["number of ops"] == pytest.approx(0.01 * 60e-6)
    assert worth["host time"] == pytest.approx(0.01 * 0.002)
    assert worth["KV bytes"] == worth["FLOPs"] == 0


def test_a_group_of_small_ops_is_as_long_as_it_has_ops() -> None:
    """30 ops of 2 us are 60 of its 100 us: one per cent fewer saves one per cent of all of them."""
    small = OpPlan(
        group=OpGroup.ROPE, calls=30, traffic=ByteTraffic(activations=1e3), time_s=100e-6
    )
    ledger = _ledger(a_run_record((_plan(WEIGHTS, small),), noise=0.0))
    worth = {one.of: one.seconds_per_percent for one in ledger.sensitivities}
    assert worth["number of ops"] == pytest.approx(0.01 * (60e-6 + 100e-6))


def test_work_in_cache_is_worth_no_bytes() -> None:
    """An append is as long as it is for its ops: fewer KV bytes would not shorten it."""
    append = OpPlan(
        group=OpGroup.KV_APPEND,
        calls=30,
        traffic=ByteTraffic(kv_write=23e3, activations=23e3),
        time_s=0.001,
    )
    ledger = _ledger(a_run_record((_plan(WEIGHTS, append),), noise=0.0))
    worth = {one.of: one.seconds_per_percent for one in ledger.sensitivities}
    assert worth["KV bytes"] == 0
    assert _parts(ledger)[Part.MEMORY_KV] == pytest.approx(23e3 / 30e9)  # and still in its part
    assert _group(ledger, OpGroup.KV_APPEND).side is None


def test_ops_are_counted_ones_and_null_without_a_counting_pass() -> None:
    counted = _ledger(a_run_record((_plan(WEIGHTS),), noise=0.0))
    uncounted = _ledger(a_run_record((_plan(WEIGHTS),), noise=0.0, counted=False))
    assert _group(counted, OpGroup.DOWN_PROJECTION).ops == 30
    assert _group(uncounted, OpGroup.DOWN_PROJECTION).ops is None
    assert _parts(uncounted)[Part.FIXED_COST] == pytest.approx(60e-6)  # one op per call


def test_more_ops_than_calls_cost_more() -> None:
    record = a_run_record((_plan(WEIGHTS),), noise=0.0)
    (step,) = record.counted
    doubled = step.model_copy(
        update={"ops": tuple(op.model_copy(update={"calls": 60}) for op in step.ops)}
    )
    ledger = _ledger(record.model_copy(update={"counted": (doubled,)}))
    assert _parts(ledger)[Part.FIXED_COST] == pytest.approx(120e-6)


def test_a_device_that_is_the_longer_one_hides_the_host() -> None:
    plan = _plan(WEIGHTS, host_s=0.003, device_s=0.0105)
    ledger = _ledger(a_run_record((plan,), noise=0.0))
    parts = _parts(ledger)
    assert ledger.step_s.point == pytest.approx(0.0105)
    assert parts[Part.GAPS] == pytest.approx(0.0005)
    assert parts[Part.HOST] == 0
    assert sum(parts.values()) == pytest.approx(0.0105)
    (host,) = (term for term in ledger.hidden if term.name == "host")
    assert host.time_s == pytest.approx(0.003)


def test_a_host_that_is_the_longer_one_shows_beside_the_device() -> None:
    plan = _plan(WEIGHTS, host_s=0.016, device_s=0.0105)
    ledger = _ledger(a_run_record((plan,), noise=0.0))
    assert ledger.step_s.point == pytest.approx(0.016)
    assert _parts(ledger)[Part.HOST] == pytest.approx(0.0055)
    assert all(term.name != "host" for term in ledger.hidden)


def test_without_a_device_clock_there_are_no_gaps() -> None:
    parts = _parts(_ledger(a_run_record((_plan(WEIGHTS),))))
    assert Part.GAPS not in parts
    assert Part.COMMUNICATION not in parts


def test_disagreeing_readings_widen_the_parts() -> None:
    plan = (_plan(WEIGHTS),)
    read = [27e9, 33e9] * 4 + [27e9]
    steady = _ledger(a_run_record(plan, noise=0.0))
    moving = _ledger(a_run_record(plan, noise=0.0, read_bytes_per_s=read))
    (narrow,) = (one.time_s for one in steady.parts if one.part == Part.MEMORY_WEIGHTS)
    (wide,) = (one.time_s for one in moving.parts if one.part == Part.MEMORY_WEIGHTS)
    assert narrow.low == narrow.high
    assert wide.low == pytest.approx(270e6 / 33e9)
    assert wide.high == pytest.approx(270e6 / 27e9)


def test_the_spread_of_alpha_is_the_fixed_costs_and_the_losses() -> None:
    """30 ops of 2 us, give or take 20 %: 60 us between 48 and 72, and the loss the other way."""
    record = a_run_record((_plan(WEIGHTS),), noise=0.0, alpha_spread=0.2)
    parts = {one.part: one.time_s for one in _ledger(record).parts}
    fixed, loss, weights = (parts[one] for one in (Part.FIXED_COST, Part.LOSS, Part.MEMORY_WEIGHTS))
    assert (fixed.low, fixed.point, fixed.high) == pytest.approx((48e-6, 60e-6, 72e-6))
    assert (loss.low, loss.high) == pytest.approx((0.928e-3, 0.952e-3))
    assert weights.low == weights.high


def test_each_round_is_split_by_the_grouped_round_beside_it() -> None:
    """The host takes 1 ms longer in every other grouped round: its interval says so."""
    record = a_run_record((_plan(WEIGHTS, host_s=0.002),), noise=0.0, grouped_rounds=8)
    grouped = tuple(
        one.model_copy(
            update={
                "steps": tuple(
                    step.model_copy(
                        update={"duration_s": step.duration_s + 0.001 * (one.index % 2)}
                    )
                    for step in one.steps
                )
            }
        )
        for one in record.grouped
    )
    ledger = _ledger(record.model_copy(update={"grouped": grouped}))
    (host,) = (part.time_s for part in ledger.parts if part.part == Part.HOST)
    assert host.low == pytest.approx(0.002)
    assert host.high == pytest.approx(0.003)
    assert host.point == pytest.approx(0.0025)


def test_intervals_claim_no_more_rounds_than_were_grouped() -> None:
    ledger = _ledger(a_run_record((_plan(WEIGHTS),), rounds=12, grouped_rounds=3))
    (loss,) = (part.time_s for part in ledger.parts if part.part == Part.LOSS)
    assert (loss.num_samples, loss.confidence) == (3, 0.75)
    assert ledger.step_s.num_samples == 12
