"""Forecasts of a verdict against steps that were changed on purpose: every ratio worked out by hand."""

import pytest

from llmprof.analysis.report import build_report
from llmprof.renderers.html_page import render_html
from llmprof.renderers.run_text import run_text
from llmprof.schema.cost import ByteTraffic, OpGroup, Phase
from llmprof.schema.intervention import Intervention, InterventionKind, InterventionOutcome
from llmprof.schema.run import RunRecord
from llmprof.schema.verdict import Verdict
from tests.records import a_reading, a_run_record
from tests.step_plans import MATMUL_FLOPS_PER_S, READ_BYTES_PER_S, OpPlan, PhasePlan

WEIGHTS = OpPlan(
    group=OpGroup.DOWN_PROJECTION,
    calls=1,
    flops=0.1e9,
    traffic=ByteTraffic(weights=0.006 * READ_BYTES_PER_S),
    time_s=0.006,
)
KV = OpPlan(
    group=OpGroup.ATTENTION,
    calls=1,
    flops=0.1e9,
    traffic=ByteTraffic(kv_read=0.002 * READ_BYTES_PER_S),
    time_s=0.002,
)
PRODUCT = OpPlan(
    group=OpGroup.GATE_UP_PROJECTION, calls=1, flops=0.008 * MATMUL_FLOPS_PER_S, time_s=0.008
)


def a_record(*ops: OpPlan, host_s: float = 0.002, device_s: float | None = None) -> RunRecord:
    """A decode step of 10 ms: 60 % weights, 20 % KV, 20 % host."""
    plan = PhasePlan(
        phase=Phase.DECODE, ops=ops or (WEIGHTS, KV), host_s=host_s, steps=4, device_s=device_s
    )
    return a_run_record((plan,), noise=0.0, alpha_s=0.0, alpha_spread=0.0)


def judged_after(record: RunRecord, one: Intervention) -> Verdict:
    (verdict,) = build_report(record.model_copy(update={"interventions": (one,)})).verdicts
    return verdict


def outcome(
    record: RunRecord, kind: InterventionKind, ratio: float, **known: object
) -> InterventionOutcome:
    """Of an intervention after which steps take `ratio` times as long, give or take 1 %."""
    base = (0.010,) * 6
    changed = tuple(0.010 * ratio * wobble for wobble in (0.99, 1.0, 1.01, 0.995, 1.005, 1.0))
    one = Intervention(
        kind=kind,
        phase=Phase.DECODE,
        change="a change",
        base_step_s=base,
        changed_step_s=changed,
        **known,
    )
    (result,) = judged_after(record, one).interventions
    return result


def test_a_host_sleep_adds_on_a_cpu() -> None:
    slept = outcome(a_record(), InterventionKind.HOST_SLEEP, 1.3, added_host_s=0.003)
    assert slept.predicted_low == pytest.approx(1.3, abs=0.002)
    assert slept.rival == 1.0
    assert slept.survived is True
    assert (
        outcome(a_record(), InterventionKind.HOST_SLEEP, 1.0, added_host_s=0.003).survived is False
    )


def test_a_host_sleep_hides_under_a_device_that_has_work_queued() -> None:
    """The host needs 4 of the device's 10 ms: 3 more are hidden, and the rival would see them."""
    kernels = a_record(WEIGHTS, KV, host_s=0.004, device_s=0.010)
    slept = outcome(kernels, InterventionKind.HOST_SLEEP, 1.0, added_host_s=0.003)
    assert slept.predicted_low == pytest.approx(1.0)
    assert slept.rival == pytest.approx(1.3, abs=0.002)
    assert slept.survived is True


@pytest.mark.parametrize(("ratio", "survived"), [(1.24, True), (1.8, False)])
def test_with_fewer_threads_the_step_follows_its_own_roof(ratio: float, survived: bool) -> None:
    """80 % on the memory side, whose roof falls to 1/1.3; arithmetic falls to a half."""
    result = outcome(
        a_record(),
        InterventionKind.FEWER_THREADS,
        ratio,
        base_readings=(a_reading(),),
        changed_readings=(
            a_reading(
                read_bytes_per_s=READ_BYTES_PER_S / 1.3, matmul_flops_per_s=MATMUL_FLOPS_PER_S / 2
            ),
        ),
    )
    assert result.predicted_low == pytest.approx(0.8 * 1.3 + 0.2, abs=0.01)
    assert result.rival == pytest.approx(0.8 * 2 + 0.2, abs=0.01)
    assert result.survived is survived


def test_a_compute_side_step_follows_the_other_roof() -> None:
    result = outcome(
        a_record(PRODUCT),
        InterventionKind.FEWER_THREADS,
        1.8,
        base_readings=(a_reading(),),
        changed_readings=(
            a_reading(
                read_bytes_per_s=READ_BYTES_PER_S / 1.3, matmul_flops_per_s=MATMUL_FLOPS_PER_S / 2
            ),
        ),
    )
    assert result.predicted_low == pytest.approx(0.8 * 2 + 0.2, abs=0.01)
    assert result.survived is True


def test_roofs_that_fall_alike_tell_nothing() -> None:
    half = a_reading(
        read_bytes_per_s=READ_BYTES_PER_S / 2, matmul_flops_per_s=MATMUL_FLOPS_PER_S / 2
    )
    result = outcome(
        a_record(),
        InterventionKind.FEWER_THREADS,
        1.8,
        base_readings=(a_reading(),),
        changed_readings=(half,),
    )
    assert result.survived is None


@pytest.mark.parametrize(("ratio", "survived"), [(1.6, True), (1.0, False), (2.5, False)])
def test_a_longer_context_costs_its_kv_bytes(ratio: float, survived: bool) -> None:
    """A fifth of the step is KV: four times as much makes 1 + 0.2 x 3."""
    result = outcome(a_record(), InterventionKind.LONGER_CONTEXT, ratio, factor=4.0)
    assert result.predicted_low == pytest.approx(1.6, abs=0.01)
    assert result.survived is survived


def test_weights_in_cache_come_as_fast_as_it_reads() -> None:
    """60 % weights, 9 tenths of them now at four times the rate: 1 - 0.54 x 3/4."""
    result = outcome(
        a_record(),
        InterventionKind.CACHE_RESIDENT,
        0.6,
        resident_fraction=0.9,
        base_readings=(a_reading(),),
        changed_readings=(a_reading(read_bytes_per_s=4 * READ_BYTES_PER_S),),
    )
    assert result.predicted_low == pytest.approx(1 - 0.54 * 0.75, abs=0.01)
    assert result.survived is True


@pytest.mark.parametrize(("ratio", "survived"), [(0.97, True), (0.85, True), (0.5, False)])
def test_replay_can_save_no_more_than_what_is_on_neither_side(ratio: float, survived: bool) -> None:
    result = outcome(a_record(), InterventionKind.REPLAY, ratio)
    assert result.predicted_low == pytest.approx(0.8, abs=0.01)
    assert result.predicted_high == 1.0
    assert result.survived is survived


@pytest.mark.parametrize(("ratio", "survived"), [(1.0, True), (0.5, False)])
def test_queued_ahead_a_device_that_limits_takes_as_long(ratio: float, survived: bool) -> None:
    kernels = a_record(WEIGHTS, KV, host_s=0.004, device_s=0.010)
    assert outcome(kernels, InterventionKind.QUEUE_AHEAD, ratio).survived is survived


def test_an_interval_with_both_answers_tells_nothing() -> None:
    one = Intervention(
        kind=InterventionKind.HOST_SLEEP,
        phase=Phase.DECODE,
        change="a change",
        base_step_s=(0.010,) * 6,
        changed_step_s=(0.009, 0.010, 0.012, 0.013, 0.013, 0.014),
        added_host_s=0.003,
    )
    (result,) = judged_after(a_record(), one).interventions
    assert result.survived is None


def test_the_summary_and_the_page_say_which_were_survived() -> None:
    made = Intervention(
        kind=InterventionKind.HOST_SLEEP,
        phase=Phase.DECODE,
        change="the host waits",
        base_step_s=(0.010,) * 6,
        changed_step_s=(0.013,) * 6,
        added_host_s=0.003,
    )
    skipped = Intervention(
        kind=InterventionKind.QUEUE_AHEAD,
        phase=Phase.DECODE,
        change="queued",
        skipped="a CPU has no queue",
    )
    record = a_record().model_copy(update={"interventions": (made, skipped)})
    report = build_report(record)
    text = " ".join(run_text(report, 140).split())
    assert "Tested: it survived host sleep; nothing was told by queue ahead." in text
    page = render_html(report).decode()
    assert "host sleep: the host waits: the step should take 1.30 x as long" in page
    assert "queue ahead: not made: a CPU has no queue" in page


def test_a_record_with_interventions_survives_the_file() -> None:
    one = Intervention(
        kind=InterventionKind.REPLAY, phase=Phase.DECODE, change="replay", skipped="no"
    )
    record = a_record().model_copy(update={"interventions": (one,)})
    assert RunRecord.model_validate_json(record.model_dump_json()) == record
