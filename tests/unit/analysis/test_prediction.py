"""Predictions from a synthetic run: every expected value is worked out from shapes by hand."""

from dataclasses import replace

import pytest

from llmprof.analysis.prediction import BaseRun, predict
from llmprof.analysis.prediction_target import target_of_run
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase
from llmprof.schema.prediction import Tier
from llmprof.schema.settings import RunConfig
from llmprof.store.settings_file import changed_settings
from tests.predicted_runs import a_base_run, device_ceilings, group_of, phase_of
from tests.step_plans import ALPHA_S, READ_BYTES_PER_S, model_phase
from tests.unit.instruments.environments import a_gpu

BASE = BaseRun.of(a_base_run())


def _settings(*sets: str) -> RunConfig:
    return changed_settings(BASE.record.settings, sets)


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
    phase = phase_of(predict(BASE, _settings("workload.prompt_tokens=2048")))
    attention = group_of(phase, OpGroup.ATTENTION)
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
    attention = group_of(phase_of(predict(base, settings)), OpGroup.ATTENTION)
    assert attention.base_s is not None
    more_s = 7 * 23_040 * 516 / (0.8 * READ_BYTES_PER_S)
    assert attention.predicted_s.point == pytest.approx(attention.base_s + more_s, rel=0.01)
    without_starts = 8 * attention.base_s - 7 * 30 * ALPHA_S  # 30 layers start one op each
    assert attention.predicted_s.high == pytest.approx(without_starts, rel=1e-3)
    assert attention.predicted_s.low == pytest.approx(attention.base_s + 0.8 * more_s, rel=0.02)


def test_what_does_not_fit_is_predicted_at_the_batch_that_does() -> None:
    found = predict(BASE, _settings("workload.batch=60000"))
    assert not found.capacity.fits
    assert found.settings.workload.batch == found.capacity.largest_batch < 60_000
    assert [caveat.code for caveat in found.caveats] == ["does-not-fit"]


def test_other_kernels_for_the_same_bytes_are_not_predicted() -> None:
    found = predict(BASE, _settings("attention.backend=native"))
    assert [caveat.code for caveat in found.caveats] == ["backend-not-predicted"]
    phase = phase_of(found)
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
        phase = phase_of(found)
        cost = target_of_run(base.record, wanted).cost(Phase.DECODE)
        before = base.target.cost(Phase.DECODE)
        assert cost.traffic.required == pytest.approx(before.traffic.required, rel=1e-12)
        assert gone.isdisjoint(op.group for op in cost.ops) is fuses
        if fuses:
            assert all(group_of(phase, group).predicted_s.point == 0.0 for group in gone)


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
    phase = phase_of(predict(BASE, _settings("weights.quantization=int8")))
    assert phase.base_step_s is not None
    assert phase.naive.byte_ratio_step_s is not None
    ratio = phase.naive.byte_ratio_step_s / phase.base_step_s.point
    assert 34 / 64 < ratio < 0.57


def test_another_device_has_its_own_roofs() -> None:
    """Twice the bandwidth and as slow a host: between once and twice as fast."""
    found = predict(BASE, _settings(), ceilings=device_ceilings(60e9, 2.4e12))
    phase = phase_of(found)
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
    down = group_of(phase_of(changed, Phase.PREFILL), OpGroup.DOWN_PROJECTION)
    rates = BASE.cases[Phase.PREFILL].rates
    assert rates is not None
    assert down.base_s is not None
    unpacking_s = 30 * 576 * 1536 * 4 / rates.read_bytes_per_s
    assert down.predicted_s.low >= unpacking_s
    assert down.predicted_s.high >= down.base_s + 4 * unpacking_s


@pytest.mark.parametrize("phase", [Phase.PREFILL, Phase.DECODE])
def test_standard_attention_that_nobody_measured_may_be_slower_than_flash(phase: Phase) -> None:
    """The demo model's decode step took 1.39 times as long with it, a step at batch 8 of another 2.25."""
    found = predict(BASE, _settings("attention.kind=standard"))
    attention = group_of(phase_of(found, phase), OpGroup.ATTENTION)
    assert attention.base_s is not None
    assert attention.predicted_s.high >= 8 * attention.base_s
    assert attention.predicted_s.point < 3 * attention.base_s
    assert "to 8 times as long, for standard attention" in attention.basis
    assert any("as far as eight times as long" in one for one in found.assumptions)


def test_flash_attention_that_nobody_measured_is_no_slower_than_standard() -> None:
    settings = _settings("attention.kind=standard")
    base = BaseRun.of(BASE.record.model_copy(update={"settings": settings}))
    attention = group_of(phase_of(predict(base, _settings())), OpGroup.ATTENTION)
    assert attention.base_s is not None
    assert attention.predicted_s.high == pytest.approx(attention.base_s)


def test_a_kernel_without_any_gain_has_none_in_all_products() -> None:
    """One kernel runs them all: the range of the step goes as far as its words, no gain at all."""
    found = phase_of(predict(BASE, _settings("weights.quantization=int4")))
    assert found.base_step_s is not None
    products = [one for one in found.groups if one.group in PROJECTIONS]
    lost_s = sum(one.predicted_s.high - one.predicted_s.point for one in products)
    saved_s = sum(one.predicted_s.point - one.predicted_s.low for one in products)
    assert found.step_s.high == pytest.approx(found.step_s.point + lost_s, rel=1e-3)
    assert found.step_s.high == pytest.approx(found.base_step_s.point, rel=1e-2)
    assert found.step_s.low == pytest.approx(found.step_s.point - saved_s, rel=1e-3)
