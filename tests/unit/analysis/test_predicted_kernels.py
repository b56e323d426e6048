"""What benchmarks of kernels, of products and of starts make of a prediction, by hand."""

import pytest

from llmprof.analysis.kernel_keys import phase_with_kernel
from llmprof.analysis.prediction import BaseRun, predict
from llmprof.analysis.prediction_target import target_of_run
from llmprof.schema.ceilings import SkinnyCeiling
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase
from llmprof.schema.prediction import KernelBenchmarks, KernelTime, OverheadTime, Tier
from llmprof.schema.settings import RunConfig
from llmprof.store.settings_file import changed_settings
from tests.predicted_runs import a_base_run, group_of, phase_of

BASE = BaseRun.of(a_base_run())


def _settings(*sets: str) -> RunConfig:
    return changed_settings(BASE.record.settings, sets)


def _kernel(group: OpGroup, base_s: float, target_s: float, spread: float = 0.0) -> KernelTime:
    return KernelTime(
        phase=Phase.DECODE,
        group=group,
        base_s=base_s,
        target_s=target_s,
        spread=spread,
        method="stated",
    )


def test_a_benchmark_of_the_kernel_decides() -> None:
    kernels = [_kernel(group, 2e-3, 1e-3) for group in PROJECTIONS]
    found = predict(
        BASE,
        _settings("weights.quantization=int8"),
        benchmarks=KernelBenchmarks(kernels=tuple(kernels)),
    )
    phase = phase_of(found)
    for group in PROJECTIONS:
        one = group_of(phase, group)
        assert one.base_s is not None
        assert one.predicted_s.point == pytest.approx(one.base_s / 2)
    unchanged = group_of(phase, OpGroup.ATTENTION)
    assert unchanged.predicted_s.point == unchanged.base_s
    saved = sum(group_of(phase, group).base_s or 0 for group in PROJECTIONS) / 2
    assert phase.base_step_s is not None
    assert phase.step_s.point == pytest.approx(phase.base_step_s.point - saved, rel=1e-4)


def test_a_loss_that_does_not_shrink_with_the_kernel_is_in_the_interval() -> None:
    """2 ms by itself before and 1 ms after: half of the run's time, or 1 ms less if the rest stays."""
    group = OpGroup.GATE_UP_PROJECTION
    found = predict(
        BASE,
        _settings("weights.quantization=int8"),
        benchmarks=KernelBenchmarks(kernels=(_kernel(group, 2e-3, 1e-3),)),
    )
    one = group_of(phase_of(found), group)
    assert one.base_s is not None
    assert one.predicted_s.high == pytest.approx(max(one.base_s / 2, one.base_s - 1e-3))


def test_an_unmeasured_kernel_is_tier_b_and_may_gain_nothing() -> None:
    phase = phase_of(predict(BASE, _settings("weights.quantization=int4")))
    assert phase.tier is Tier.B
    one = group_of(phase, OpGroup.DOWN_PROJECTION)
    assert one.predicted_s.high == pytest.approx(one.base_s)
    assert "not measured" in one.basis


def _with_skinny_roofs(*roofs: tuple[str, float, float]) -> BaseRun:
    """Format, bytes/s and spread of products with one row."""
    skinny = tuple(
        SkinnyCeiling(
            format=name,
            rows=1,
            out_features=1536,
            in_features=576,
            level="dram",
            bytes_per_s=rate,
            median_bytes_per_s=rate,
            spread=spread,
            kernel="matvec",
        )
        for name, rate, spread in roofs
    )
    record = BASE.record
    ceilings = record.ceilings.model_copy(update={"skinny": skinny})
    return BaseRun.of(record.model_copy(update={"ceilings": ceilings}))


def test_cached_skinny_roofs_make_it_tier_c() -> None:
    """bf16 at 20 GB/s and int8 in groups of 32 at 17 GB/s: bytes 34/64 of 2, so 0.625 x the time."""
    base = _with_skinny_roofs(("bf16", 20e9, 0.0), ("int8_g32", 17e9, 0.0))
    found = predict(base, _settings("weights.quantization=int8", "workload.context=synthetic"))
    phase = phase_of(found)
    assert phase.tier is Tier.C
    one = group_of(phase, OpGroup.GATE_UP_PROJECTION)
    assert one.base_s is not None
    assert one.predicted_s.point / one.base_s == pytest.approx((34 / 64) * 20 / 17, rel=1e-3)


def test_roofs_of_a_disturbed_benchmark_are_no_basis() -> None:
    """A bf16 roof that its neighbours halved would promise twice the gain of int8: tier B then."""
    base = _with_skinny_roofs(("bf16", 10e9, 0.9), ("int8_g32", 17e9, 0.0))
    phase = phase_of(predict(base, _settings("weights.quantization=int8")))
    assert phase.tier is Tier.B
    assert "not measured" in group_of(phase, OpGroup.GATE_UP_PROJECTION).basis


def test_the_spread_of_formats_that_do_not_matter_widens_nothing() -> None:
    pair = (("bf16", 20e9, 0.0), ("int8_g32", 17e9, 0.0))
    change = _settings("weights.quantization=int8")
    alone = phase_of(predict(_with_skinny_roofs(*pair), change))
    beside = phase_of(predict(_with_skinny_roofs(*pair, ("fp32", 9e9, 0.4)), change))
    assert beside.step_s == alone.step_s


def test_replayed_steps_change_as_their_skeleton_does() -> None:
    """Small groups and the host by its ratio, products by what it saves, scaled by the small groups."""
    skeleton = {
        None: (0.3e-3, 0.1e-3),
        OpGroup.NORM: (0.2e-3, 0.1e-3),
        OpGroup.DOWN_PROJECTION: (0.15e-3, 0.05e-3),
    }
    overheads = [
        OverheadTime(phase=Phase.DECODE, group=group, base_s=base_s, target_s=target_s)
        for group, (base_s, target_s) in skeleton.items()
    ]
    found = predict(
        BASE,
        _settings("execution.mode=compiled"),
        benchmarks=KernelBenchmarks(overheads=tuple(overheads)),
    )
    phase = phase_of(found)
    assert phase.base_step_s is not None
    before = {one.group: one.base_s or 0.0 for one in phase.groups}
    saved_s = before[None] * 2 / 3 + before[OpGroup.NORM] / 2
    saved_s += 0.1e-3 * before[OpGroup.NORM] / 0.2e-3
    assert phase.step_s.point == pytest.approx(phase.base_step_s.point - saved_s)
    prefill = phase_of(found, Phase.PREFILL)
    assert prefill.base_step_s is not None
    assert prefill.step_s.point == pytest.approx(prefill.base_step_s.point)


def test_unmeasured_starts_cost_what_small_ops_take_or_half_or_twice_as_much() -> None:
    """One unknown, what a start costs, is behind every group and the host: it does not average out."""
    phase = phase_of(predict(BASE, _settings("execution.mode=compiled")))
    assert phase.base_step_s is not None
    base_s = phase.base_step_s.point
    saved_s = base_s - phase.step_s.point
    assert saved_s > 0
    assert phase.step_s.high == pytest.approx(base_s - saved_s / 2, rel=0.05)
    assert base_s - 2.1 * saved_s <= phase.step_s.low < phase.step_s.point


def test_what_the_starts_of_a_whole_step_save_leaves_no_share_above_one() -> None:
    """Cached costs know the step alone: its saving is taken from the ops, not from the host."""
    whole = OverheadTime(phase=Phase.DECODE, group=None, base_s=8e-3, target_s=1e-3)
    phase = phase_of(
        predict(
            BASE,
            _settings("execution.mode=compiled"),
            benchmarks=KernelBenchmarks(overheads=(whole,)),
        )
    )
    assert 0 < phase.limit_share <= 1
    assert all(one.predicted_s.point >= 0 for one in phase.groups)


def test_a_faster_product_holds_fewer_of_the_starts_that_replayed_steps_do_without() -> None:
    """Twice as fast: the starts in it were halved with it, so half of what the skeleton saves is left."""
    group, other = OpGroup.DOWN_PROJECTION, OpGroup.LM_HEAD
    overheads = tuple(
        OverheadTime(phase=Phase.DECODE, group=one, base_s=3e-6, target_s=1e-6)
        for one in (group, other)
    )
    kernels = (_kernel(group, 2e-3, 1e-3),)
    found = predict(
        BASE,
        _settings("execution.mode=compiled", "weights.quantization=int4"),
        benchmarks=KernelBenchmarks(kernels=kernels, overheads=overheads),
    )
    one = group_of(phase_of(found), group)
    assert one.base_s is not None
    assert one.predicted_s.point == pytest.approx((one.base_s - 2e-6) / 2)


@pytest.mark.parametrize("base_phase", [None, Phase.PREFILL])
def test_a_kernel_that_ran_in_the_other_phase_keeps_its_time_there(
    base_phase: Phase | None,
) -> None:
    """Without a cache a decode step is a prefill of all tokens so far.

    A benchmark that leads from the product of one row to the one of many says less than the prefill
    itself; one that leads from the prefill's rows to those of the step is what is wanted.
    """
    group = OpGroup.DOWN_PROJECTION
    kernel = _kernel(group, 5e-3, 6e-3).model_copy(update={"base_phase": base_phase})
    settings = _settings("kv_cache.layout=none")
    found = predict(BASE, settings, benchmarks=KernelBenchmarks(kernels=(kernel,)))
    decode, prefill = phase_of(found), phase_of(found, Phase.PREFILL)
    before, after = group_of(prefill, group), group_of(decode, group)
    assert before.base_s is not None
    growth = 1.2 if base_phase else decode.shape.new_tokens / prefill.shape.new_tokens
    assert growth > 1
    assert after.predicted_s.point == pytest.approx(before.base_s * growth, rel=0.02)
    target = target_of_run(BASE.record, settings)
    for one in (group, OpGroup.ATTENTION, OpGroup.ACTIVATION):
        assert phase_with_kernel(one, BASE.target, target, Phase.DECODE) is Phase.PREFILL
    assert phase_with_kernel(OpGroup.LM_HEAD, BASE.target, target, Phase.DECODE) is Phase.DECODE
