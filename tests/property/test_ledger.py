import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmprof.analysis.fixed_cost import GroupFixedCost
from llmprof.analysis.group_times import GroupedStep
from llmprof.analysis.rates import Rates
from llmprof.analysis.report import build_report
from llmprof.analysis.step_split import StepSplit, StepWork, split_step
from llmprof.schema.cost import (
    ByteTraffic,
    OpCost,
    OpGroup,
    Phase,
    SequenceShape,
    StepCost,
    StepShape,
)
from tests.records import OpPlan, PhasePlan, a_run_record

SHAPE = StepShape(
    phase=Phase.DECODE, sequences=(SequenceShape(new_tokens=1, cached_tokens=8),), logit_rows=1
)
amount = st.floats(min_value=0, max_value=1e12, allow_nan=False)
time_s = st.floats(min_value=1e-6, max_value=10.0)


@st.composite
def op_costs(draw: st.DrawFn) -> OpCost:
    flops = draw(amount)
    return OpCost(
        name="op",
        group=draw(st.sampled_from([OpGroup.NORM, OpGroup.ATTENTION, OpGroup.LM_HEAD])),
        calls=draw(st.integers(1, 100)),
        compute_dtype="bf16",
        flops=flops,
        flops_dense=flops,
        flops_causal=flops,
        traffic=ByteTraffic(
            weights=draw(amount),
            kv_read=draw(amount),
            logits=draw(amount),
            activations=draw(amount),
        ),
    )


@st.composite
def splits(draw: st.DrawFn, unit: float = 1.0) -> StepSplit:
    """A step split with every time given in units of `unit` seconds."""
    groups = draw(st.dictionaries(st.sampled_from(list(OpGroup)), time_s, min_size=1, max_size=6))
    outside_s = draw(st.floats(min_value=-0.1, max_value=5.0))
    ops = draw(st.lists(op_costs(), max_size=6))
    step_s = draw(time_s)
    device_s = draw(st.none() | time_s)
    work = StepWork(
        cost=StepCost(shape=SHAPE, ops=tuple(ops)),
        fixed_cost=GroupFixedCost(
            alpha_s=draw(st.floats(min_value=0, max_value=1e-3)) * unit, spread=0.0, ops=None
        ),
        cache_bytes=1_000_000,
    )
    grouped = GroupedStep(
        start_s=0.0,
        step_s=step_s * unit,
        group_s={group: value * unit for group, value in groups.items()},
        outside_s=outside_s * unit,
    )
    return split_step(
        step_s * unit,
        None if device_s is None else device_s * unit,
        grouped,
        work,
        Rates(30e9 / unit, 1e12 / unit, "bf16", {}),
    )


@given(splits())
def test_parts_and_limits_sum_to_the_step_whatever_it_does(split: StepSplit) -> None:
    scale = max(abs(value) for value in split.parts_s().values())
    assert sum(split.parts_s().values()) == pytest.approx(split.step_s, rel=1e-9, abs=1e-9 * scale)
    assert sum(split.limits_s().values()) == pytest.approx(split.step_s, rel=1e-9, abs=1e-9 * scale)


@given(splits())
def test_a_loss_is_time_minus_roof_and_the_roof_is_no_shorter_than_a_link(
    split: StepSplit,
) -> None:
    for group in split.groups.values():
        assert group.loss_s == group.time_s - group.roof_s
        assert group.roof_s >= max(group.memory_s, group.compute_s) * (1 - 1e-12)
        assert group.link_s <= (group.memory_s + group.compute_s) * (1 + 1e-12)


@settings(max_examples=20)
@given(st.data())
def test_seconds_or_milliseconds_make_no_difference(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 2**16))
    record = a_run_record(_plans(1.0), seed=seed, rounds=4, grouped_rounds=2)
    # the same run on a machine that does everything 1024 times slower
    slow = a_run_record(
        _plans(1024.0),
        seed=seed,
        rounds=4,
        grouped_rounds=2,
        read_bytes_per_s=30e9 / 1024,
        matmul_flops_per_s=1.2e12 / 1024,
        alpha_s=2e-6 * 1024,
    )
    (one,), (other,) = (build_report(run).ledgers for run in (record, slow))
    for part, slower in zip(one.parts, other.parts, strict=True):
        assert slower.share == pytest.approx(part.share, abs=2e-4)  # the probe's own cost stays


def _plans(slowness: float) -> tuple[PhasePlan, ...]:
    read = OpPlan(
        group=OpGroup.LM_HEAD,
        calls=1,
        flops=3e8,
        traffic=ByteTraffic(weights=3e8),
        time_s=0.012 * slowness,
    )
    return (PhasePlan(phase=Phase.DECODE, ops=(read,), host_s=0.001 * slowness, steps=2),)


@settings(max_examples=15)
@given(st.permutations(range(6)))
def test_the_order_in_the_file_does_not_matter(order: list[int]) -> None:
    record = a_run_record(_plans(1.0), rounds=6, grouped_rounds=6)
    shuffled = record.model_copy(
        update={
            "rounds": tuple(record.rounds[index] for index in order),
            "grouped": tuple(record.grouped[index] for index in order),
        }
    )
    one, other = build_report(record), build_report(shuffled)
    assert (one.ledgers, one.verdicts, one.points) == (other.ledgers, other.verdicts, other.points)


@given(splits())
def test_no_group_takes_less_than_no_time(split: StepSplit) -> None:
    """However much longer the grouped step is than the clean one."""
    assert all(group.time_s >= 0 for group in split.groups.values())
