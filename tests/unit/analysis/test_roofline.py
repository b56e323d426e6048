import pytest

from llmprof.analysis.report import build_report
from llmprof.schema.cost import ByteTraffic, OpGroup, Phase
from llmprof.schema.ledger import Part
from llmprof.schema.report import Report, RooflinePoint
from llmprof.schema.run import RunRecord
from tests.records import OpPlan, PhasePlan, a_run_record

LINK_PARTS = (Part.MEMORY_WEIGHTS, Part.MEMORY_KV, Part.MEMORY_OTHER, Part.COMPUTE)
PROJECTION = OpPlan(
    group=OpGroup.LM_HEAD,
    calls=2,
    flops=150e6,
    traffic=ByteTraffic(weights=150e6, activations=50e6),  # 5 ms at 30 GB/s; 200 MB in all
    time_s=0.006,
)
ATTENTION = OpPlan(
    group=OpGroup.ATTENTION,
    calls=1,
    flops=300e6,
    traffic=ByteTraffic(kv_read=60e6),  # 2 ms
    time_s=0.004,
)


def _points(record: RunRecord) -> dict[str, RooflinePoint]:
    return {point.label: point for point in build_report(record).points}


def _plan(*ops: OpPlan, phase: Phase = Phase.DECODE) -> tuple[PhasePlan, ...]:
    return (PhasePlan(phase=phase, ops=ops),)


def test_a_decode_is_placed_with_its_projections_and_its_attention() -> None:
    points = _points(a_run_record(_plan(PROJECTION, ATTENTION), noise=0.0))
    assert list(points) == ["decode", "decode projections", "decode attention"]
    whole = points["decode"]
    assert whole.achieved_flops_per_s.point == pytest.approx(450e6 / 0.010)
    assert whole.achieved_bytes_per_s.point == pytest.approx(210e6 / 0.010)
    assert points["decode projections"].time_share == pytest.approx(0.6)
    assert points["decode attention"].roof_fraction.point == pytest.approx(0.5)
    assert points["decode attention"].achieved_bytes_per_s.point == pytest.approx(15e9)


def test_the_intensity_bar_runs_from_all_activations_to_none() -> None:
    point = _points(a_run_record(_plan(PROJECTION), noise=0.0))["decode"]
    assert point.intensity_flops_per_byte == pytest.approx(1.0)
    assert point.intensity_low_flops_per_byte == pytest.approx(0.75)


@pytest.mark.parametrize("kind", ["scores", "logits", "copies"])
def test_the_bar_spans_whatever_a_cache_may_hold(kind: str) -> None:
    """20 MB per call fit in the cache of 32 MiB, 40 MB do not."""
    for per_call, right_end in ((20e6, 150e6), (40e6, 230e6)):
        traffic = ByteTraffic(weights=150e6, **{kind: 2 * per_call})
        plan = OpPlan(group=OpGroup.LM_HEAD, calls=2, flops=150e6, traffic=traffic, time_s=0.02)
        point = _points(a_run_record(_plan(plan), noise=0.0))["decode"]
        assert point.bytes_required == pytest.approx(right_end)
        assert point.intensity_flops_per_byte == pytest.approx(150e6 / right_end)
        assert point.intensity_low_flops_per_byte == pytest.approx(150e6 / (150e6 + 2 * per_call))


def test_attainable_is_the_sum_of_the_ops_roofs() -> None:
    """A compute-side and a memory-side op one after the other: 5 + 7 ms, not max of the sums."""
    product = OpPlan(group=OpGroup.QKV_PROJECTION, calls=1, flops=6e9, time_s=0.008)
    reads = OpPlan(
        group=OpGroup.LM_HEAD,
        calls=1,
        flops=0.0,
        traffic=ByteTraffic(weights=210e6),
        time_s=0.008,
    )
    point = _points(a_run_record(_plan(product, reads), noise=0.0))["decode"]
    assert point.attainable_flops_per_s == pytest.approx(6e9 / 0.012)
    assert point.roof_fraction.point == pytest.approx(0.75)


def test_the_fraction_follows_the_readings_beside_each_round() -> None:
    """The ceiling drifts by a factor of two and the steps with it: the ratio stands still."""
    read = [20e9, 20e9, 20e9, 20e9, 40e9, 40e9, 40e9, 40e9, 40e9]
    record = a_run_record(_plan(PROJECTION), noise=0.0, read_bytes_per_s=read)
    rounds = []
    for one in record.rounds:
        fast = 40e9 if one.index >= 4 else 20e9
        duration_s = 150e6 / fast / 0.8
        steps = tuple(step.model_copy(update={"duration_s": duration_s}) for step in one.steps)
        rounds.append(one.model_copy(update={"steps": steps}))
    record = record.model_copy(update={"rounds": tuple(rounds)})
    point = _points(record)["decode"]
    assert point.roof_fraction.point == pytest.approx(0.8)
    _agree(build_report(record))


def _agree(report: Report) -> None:
    """Points, ledger and roof fraction tell one story to the last digits."""
    for point in report.points:
        reached = point.achieved_flops_per_s.point / point.attainable_flops_per_s
        assert reached == pytest.approx(point.roof_fraction.point, rel=1e-9), point.label
    for ledger, verdict in zip(report.ledgers, report.verdicts, strict=True):
        links_s = sum(one.time_s.point for one in ledger.parts if one.part in LINK_PARTS)
        assert verdict.roof_fraction is not None
        assert links_s / ledger.step_s.point == pytest.approx(verdict.roof_fraction.point, rel=1e-9)


@pytest.mark.parametrize("seed", [1, 2])
def test_one_fraction_whatever_way_it_is_read(seed: int) -> None:
    """Noise and drift make the median of ratios another number than the ratio of medians."""
    read = [24e9, 31e9, 28e9, 35e9, 27e9, 33e9, 29e9, 30e9]
    _agree(build_report(a_run_record(rounds=7, noise=0.2, read_bytes_per_s=read, seed=seed)))


def test_disagreeing_readings_widen_the_fraction() -> None:
    read = [27e9, 33e9] * 4 + [27e9]
    point = _points(a_run_record(_plan(PROJECTION), noise=0.0, read_bytes_per_s=read))["decode"]
    assert point.roof_fraction.point == pytest.approx(5 / 6)
    assert point.roof_fraction.low == pytest.approx(150e6 / 33e9 / 0.006)
    assert point.roof_fraction.high == pytest.approx(150e6 / 27e9 / 0.006)


def test_work_without_flops_has_no_place_on_the_axes() -> None:
    copy = OpPlan(
        group=OpGroup.OTHER, calls=1, traffic=ByteTraffic(copies=60e6), time_s=0.004, flops=0.0
    )
    report = build_report(a_run_record(_plan(copy), noise=0.0))
    assert report.points == ()
    assert report.verdicts[0].roof_fraction is not None
    assert report.verdicts[0].roof_fraction.point == pytest.approx(0.5)


def test_without_group_times_the_phase_stands_alone() -> None:
    points = _points(a_run_record(_plan(PROJECTION, ATTENTION), grouped_rounds=0))
    assert list(points) == ["decode"]


def test_a_prefill_is_one_point() -> None:
    points = _points(a_run_record(_plan(PROJECTION, phase=Phase.PREFILL)))
    assert list(points) == ["prefill"]


def test_no_datasheet_no_mfu() -> None:
    point = _points(a_run_record(_plan(PROJECTION)))["decode"]
    assert (point.mfu, point.mbu) == (None, None)
