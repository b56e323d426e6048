"""Predictions from a synthetic run: every expected value is worked out from shapes by hand."""

from dataclasses import replace

import pytest

from llmprof.analysis.prediction import BaseRun, predict
from llmprof.analysis.prediction_target import target_of_run
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.ceilings import SkinnyCeiling
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase
from llmprof.schema.prediction import (
    GroupPrediction,
    KernelBenchmarks,
    KernelTime,
    OverheadTime,
    PhasePrediction,
    Prediction,
    Tier,
)
from llmprof.schema.settings import RunConfig
from llmprof.store.settings_file import changed_settings
from tests.predicted_runs import a_base_run, device_ceilings
from tests.step_plans import ALPHA_S, READ_BYTES_PER_S, model_phase
from tests.unit.instruments.environments import a_gpu

BASE = BaseRun.of(a_base_run())


def _settings(*sets: str) -> RunConfig:
    return changed_settings(BASE.record.settings, sets)


def _phase(prediction: Prediction, phase: Phase = Phase.DECODE) -> PhasePrediction:
    (found,) = (one for one in prediction.phases if one.phase is phase)
    return found


def _group(phase: PhasePrediction, group: OpGroup | None) -> GroupPrediction:
    (found,) = (one for one in phase.groups if one.group is group)
    return found


def _kernel(group: OpGroup, base_s: float, target_s: float, spread: float = 0.0) -> KernelTime:
    return KernelTime(
        phase=Phase.DECODE,
        group=group,
        base_s=base_s,
        target_s=target_s,
        spread=spread,
        method="stated",
    )


def test_no_change_predicts_the_run_itself() -> None:
    found = predict(BASE, _settings())
    assert found.changes == ()
    assert found.tier is Tier.C
    for phase in found.phases:
        assert phase.speedup is not None
        for value in (phase.speedup.low, phase.speedup.point, phase.speedup.high):
            assert value == pytest.approx(1.0)


def test_attention_grows_with_the_cache_at_the_rate_of_its_benchmark() -> None:
    """Four times the prompt: 2052 instead of 516 cached tokens, the difference at 80 % of 30 GB/s."""
    phase = _phase(predict(BASE, _settings("workload.prompt_tokens=2048")))
    attention = _group(phase, OpGroup.ATTENTION)
    assert attention.base_s is not None
    assert phase.shape.cached_tokens == 2052
    more_s = 23_040 * (2052 - 516) / (0.8 * READ_BYTES_PER_S)
    assert attention.predicted_s.point == pytest.approx(attention.base_s + more_s, rel=1e-3)
    assert attention.predicted_s.low < attention.predicted_s.point < attention.predicted_s.high
    assert phase.tier is Tier.C


def test_a_short_attention_call_does_not_lose_eight_times_as_much_at_batch_8() -> None:
    """Three times its roof at batch 1: seven more caches of 516 tokens are read at 80 % of 30 GB/s."""
    prefill, decode = model_phase(Phase.PREFILL), model_phase(Phase.DECODE)
    ops = tuple(
        replace(op, time_s=3 * op.time_s) if op.group is OpGroup.ATTENTION else op
        for op in decode.ops
    )
    base = BaseRun.of(a_base_run(phases=(prefill, replace(decode, ops=ops))))
    settings = changed_settings(base.record.settings, ["workload.batch=8"])
    attention = _group(_phase(predict(base, settings)), OpGroup.ATTENTION)
    assert attention.base_s is not None
    more_s = 7 * 23_040 * 516 / (0.8 * READ_BYTES_PER_S)
    assert attention.predicted_s.point == pytest.approx(attention.base_s + more_s, rel=0.01)
    without_starts = 8 * attention.base_s - 7 * 30 * ALPHA_S  # 30 layers start one op each
    assert attention.predicted_s.high == pytest.approx(without_starts, rel=1e-3)
    assert attention.predicted_s.low == pytest.approx(attention.base_s + 0.8 * more_s, rel=0.02)


def test_a_benchmark_of_the_kernel_decides() -> None:
    kernels = [_kernel(group, 2e-3, 1e-3) for group in PROJECTIONS]
    found = predict(
        BASE,
        _settings("weights.quantization=int8"),
        benchmarks=KernelBenchmarks(kernels=tuple(kernels)),
    )
    phase = _phase(found)
    for group in PROJECTIONS:
        one = _group(phase, group)
        assert one.base_s is not None
        assert one.predicted_s.point == pytest.approx(one.base_s / 2)
    unchanged = _group(phase, OpGroup.ATTENTION)
    assert unchanged.predicted_s.point == unchanged.base_s
    saved = sum(_group(phase, group).base_s or 0 for group in PROJECTIONS) / 2
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
    one = _group(_phase(found), group)
    assert one.base_s is not None
    assert one.predicted_s.high == pytest.approx(max(one.base_s / 2, one.base_s - 1e-3))


def test_an_unmeasured_kernel_is_tier_b_and_may_gain_nothing() -> None:
    phase = _phase(predict(BASE, _settings("weights.quantization=int4")))
    assert phase.tier is Tier.B
    one = _group(phase, OpGroup.DOWN_PROJECTION)
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
    phase = _phase(found)
    assert phase.tier is Tier.C
    one = _group(phase, OpGroup.GATE_UP_PROJECTION)
    assert one.base_s is not None
    assert one.predicted_s.point / one.base_s == pytest.approx((34 / 64) * 20 / 17, rel=1e-3)


def test_roofs_of_a_disturbed_benchmark_are_no_basis() -> None:
    """A bf16 roof that its neighbours halved would promise twice the gain of int8: tier B then."""
    base = _with_skinny_roofs(("bf16", 10e9, 0.9), ("int8_g32", 17e9, 0.0))
    phase = _phase(predict(base, _settings("weights.quantization=int8")))
    assert phase.tier is Tier.B
    assert "not measured" in _group(phase, OpGroup.GATE_UP_PROJECTION).basis


def test_the_spread_of_formats_that_do_not_matter_widens_nothing() -> None:
    pair = (("bf16", 20e9, 0.0), ("int8_g32", 17e9, 0.0))
    change = _settings("weights.quantization=int8")
    alone = _phase(predict(_with_skinny_roofs(*pair), change))
    beside = _phase(predict(_with_skinny_roofs(*pair, ("fp32", 9e9, 0.4)), change))
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
    phase = _phase(found)
    assert phase.base_step_s is not None
    before = {one.group: one.base_s or 0.0 for one in phase.groups}
    saved_s = before[None] * 2 / 3 + before[OpGroup.NORM] / 2
    saved_s += 0.1e-3 * before[OpGroup.NORM] / 0.2e-3
    assert phase.step_s.point == pytest.approx(phase.base_step_s.point - saved_s)
    prefill = _phase(found, Phase.PREFILL)
    assert prefill.base_step_s is not None
    assert prefill.step_s.point == pytest.approx(prefill.base_step_s.point)


def test_unmeasured_starts_cost_what_small_ops_take_or_half_or_twice_as_much() -> None:
    """One unknown, what a start costs, is behind every group and the host: it does not average out."""
    phase = _phase(predict(BASE, _settings("execution.mode=compiled")))
    assert phase.base_step_s is not None
    base_s = phase.base_step_s.point
    saved_s = base_s - phase.step_s.point
    assert saved_s > 0
    assert phase.step_s.high == pytest.approx(base_s - saved_s / 2, rel=0.05)
    assert base_s - 2.1 * saved_s <= phase.step_s.low < phase.step_s.point


def test_what_does_not_fit_is_predicted_at_the_batch_that_does() -> None:
    found = predict(BASE, _settings("workload.batch=60000"))
    assert not found.capacity.fits
    assert found.settings.workload.batch == found.capacity.largest_batch < 60_000
    assert [caveat.code for caveat in found.caveats] == ["does-not-fit"]


def test_other_kernels_for_the_same_bytes_are_not_predicted() -> None:
    found = predict(BASE, _settings("attention.backend=native"))
    assert [caveat.code for caveat in found.caveats] == ["backend-not-predicted"]
    phase = _phase(found)
    assert phase.base_step_s is not None
    assert phase.step_s.point == pytest.approx(phase.base_step_s.point)


def test_fused_kernels_start_fewer_ops_and_read_the_same_weights() -> None:
    """On a GPU: norms, rotation and gate are parts of others, and back again; a CPU has none."""
    with pytest.raises(
        CapabilityError, match="fused=on is not available: its kernels are made for"
    ):
        predict(BASE, _settings("execution.fused=on"))
    record = BASE.record.model_copy(
        update={
            "environment": BASE.record.environment.model_copy(
                update={"gpu": a_gpu(), "versions": {"torch": "2.13.0", "triton": "3.6.0"}}
            )
        }
    )
    off = changed_settings(record.settings, ["execution.fused=off"])
    apart = BaseRun.of(record.model_copy(update={"settings": off}))
    engine = record.engine.model_copy(update={"fused_rows": 16})
    fused = BaseRun.of(record.model_copy(update={"engine": engine}))
    assert predict(apart, off).caveats == ()
    assert predict(fused, record.settings).caveats == ()
    gone = {OpGroup.NORM, OpGroup.ROPE, OpGroup.ACTIVATION}
    for base, wanted, fuses in ((apart, record.settings, True), (fused, off, False)):
        found = predict(base, wanted)
        assert [caveat.code for caveat in found.caveats] == ["fusion-not-measured"]
        assert found.tier is Tier.B
        phase = _phase(found)
        cost = target_of_run(base.record, wanted).cost(Phase.DECODE)
        before = base.target.cost(Phase.DECODE)
        assert cost.traffic.required == pytest.approx(before.traffic.required, rel=1e-12)
        assert gone.isdisjoint(op.group for op in cost.ops) is fuses
        if fuses:
            assert all(_group(phase, group).predicted_s.point == 0.0 for group in gone)


def test_what_torch_compile_gives_is_not_predicted() -> None:
    """On a GPU; on a CPU `compiled` starts the same kernels from a list."""
    predict(BASE, _settings("execution.mode=compiled"))
    there = BASE.record.environment.model_copy(update={"gpu": a_gpu()})
    eager = BASE.record.model_copy(update={"environment": there})
    settings = _settings("execution.mode=compiled")
    compiled = eager.model_copy(update={"settings": settings})
    for record, wanted in ((eager, settings), (compiled, eager.settings)):
        with pytest.raises(CapabilityError, match="is measured, not predicted") as caught:
            predict(BaseRun.of(record), wanted)
        assert "llmprof compare" in (caught.value.remedy or "")
    batch = changed_settings(settings, ["workload.batch=4"])
    assert predict(BaseRun.of(compiled), batch).phases
    elsewhere = device_ceilings(4e12, 9e14)
    on_gpu = elsewhere.model_copy(
        update={"environment": elsewhere.environment.model_copy(update={"gpu": a_gpu()})}
    )
    with pytest.raises(CapabilityError, match="is measured, not predicted"):
        predict(BASE, settings, ceilings=on_gpu)


def test_the_naive_forecast_by_bytes() -> None:
    """269 MB of weights become 34/64 of that but for the norms; the cache stays."""
    phase = _phase(predict(BASE, _settings("weights.quantization=int8")))
    assert phase.base_step_s is not None
    assert phase.naive.byte_ratio_step_s is not None
    ratio = phase.naive.byte_ratio_step_s / phase.base_step_s.point
    assert 34 / 64 < ratio < 0.57


def test_another_device_has_its_own_roofs() -> None:
    """Twice the bandwidth and as slow a host: between once and twice as fast."""
    found = predict(BASE, _settings(), ceilings=device_ceilings(60e9, 2.4e12))
    phase = _phase(found)
    assert found.tier is phase.tier is Tier.B
    assert found.device == "Another CPU"
    assert phase.speedup is not None
    assert 1.4 < phase.speedup.point < 2.0
    assert phase.speedup.low < phase.speedup.point < phase.speedup.high


def test_parts_sum_to_the_predicted_step() -> None:
    for sets in ("weights.quantization=int4", "workload.batch=8", "attention.kind=standard"):
        for phase in predict(BASE, _settings(sets)).phases:
            total = sum(part.predicted_s for part in phase.parts)
            assert total == pytest.approx(phase.step_s.point)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ("parallel.tensor=2", CapabilityError, "measured, not predicted"),
        ("batching.policy=continuous", CapabilityError, "fixed work"),
        ("workload.prompt_tokens=9000", InputError, "positions"),
        ("model=llama-3.2-1b", InputError, "another model"),
        ("device=cuda:0", InputError, "another device"),
    ],
)
def test_what_cannot_be_predicted_is_refused(
    change: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        predict(BASE, _settings(change))


def test_weights_that_are_unpacked_for_a_prompt_cost_its_prefill() -> None:
    """A prompt's projections write their weights out as bf16 and read them back: 4 bytes a weight."""
    changed = predict(BASE, _settings("weights.quantization=int8"))
    down = _group(_phase(changed, Phase.PREFILL), OpGroup.DOWN_PROJECTION)
    rates = BASE.cases[Phase.PREFILL].rates
    assert rates is not None
    assert down.base_s is not None
    unpacking_s = 30 * 576 * 1536 * 4 / rates.read_bytes_per_s
    assert down.predicted_s.low >= unpacking_s
    assert down.predicted_s.high >= down.base_s + 4 * unpacking_s


def test_what_the_starts_of_a_whole_step_save_leaves_no_share_above_one() -> None:
    """Cached costs know the step alone: its saving is taken from the ops, not from the host."""
    whole = OverheadTime(phase=Phase.DECODE, group=None, base_s=8e-3, target_s=1e-3)
    phase = _phase(
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
    kernels = tuple(
        KernelTime(
            phase=Phase.DECODE, group=one, base_s=2e-3, target_s=1e-3, spread=0.0, method="here"
        )
        for one in (group,)
    )
    found = predict(
        BASE,
        _settings("execution.mode=compiled", "weights.quantization=int4"),
        benchmarks=KernelBenchmarks(kernels=kernels, overheads=overheads),
    )
    before, after = next(
        (one.base_s, one.predicted_s.point) for one in _phase(found).groups if one.group is group
    )
    assert before is not None
    assert after == pytest.approx((before - 2e-6) / 2)
