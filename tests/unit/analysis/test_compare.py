import pytest

from llmprof.analysis.comparable import why_not_comparable
from llmprof.analysis.compare import compare_reports
from llmprof.analysis.compare_headline import headline
from llmprof.errors import NotComparableError
from llmprof.schema.comparison import Basis, Change, Comparison, MetricChange
from llmprof.schema.cost import Phase
from llmprof.schema.measurement import Estimate
from llmprof.schema.report import Report
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from tests.records import a_report, a_run_record, model_phase


def slower(factor: float, seed: int = 2) -> Report:
    """The same work, each link reached `factor` less well."""
    efficiency = 0.9 / factor
    plans = [model_phase(phase, efficiency=efficiency) for phase in (Phase.PREFILL, Phase.DECODE)]
    return a_report(a_run_record(plans, seed=seed))


def change_of(comparison: Comparison, name: str) -> MetricChange:
    return next(one for one in comparison.metrics if one.metric.name == name)


def test_one_launch_a_side_shows_nothing_however_large_the_difference() -> None:
    comparison = compare_reports([a_report()], [slower(2.0)])
    tpot = change_of(comparison, "decode.tpot_s.p50")
    assert tpot.ratio is not None
    assert tpot.ratio.low > 1.5
    assert (tpot.basis, tpot.change, tpot.p_value) == (Basis.ONE_LAUNCH, Change.NOT_SHOWN, None)
    assert "no significance is claimed" in comparison.headline


def test_the_interval_of_a_ratio_holds_every_ratio_that_both_allow() -> None:
    base, cand = a_report(), slower(1.2)
    comparison = compare_reports([base], [cand])
    change = change_of(comparison, "decode.step_s.p50")
    one, other = (report.phases[1].step_s for report in (base, cand))
    assert change.ratio is not None
    assert change.ratio.low == pytest.approx(other.low / one.high)
    assert change.ratio.high == pytest.approx(other.high / one.low)
    assert change.ratio.confidence == pytest.approx(one.confidence + other.confidence - 1)


def test_four_launches_a_side_show_nothing_in_one_of_eight_metrics() -> None:
    """All four above all four: p = 2 / 70, and eight times that is no evidence."""
    base = [slower(1.0, seed) for seed in range(4)]
    cand = [slower(1.3, seed) for seed in range(4, 8)]
    comparison = compare_reports(base, cand)
    change = change_of(comparison, "decode.tpot_s.p50")
    assert change.p_value == pytest.approx(2 / 70)
    assert change.p_adjusted == pytest.approx(8 * 2 / 70)
    assert (change.basis, change.change) == (Basis.LAUNCHES, Change.NOT_SHOWN)
    # Both sides all apart: 2 / C(10, 5) = 0.0079 is above 0.05 / 8, 2 / C(12, 6) = 0.0022 below.
    assert comparison.launches_needed == 6


def test_six_launches_a_side_show_a_difference_in_one_of_eight_metrics() -> None:
    base = [slower(1.0, seed) for seed in range(6)]
    cand = [slower(1.3, seed) for seed in range(6, 12)]
    comparison = compare_reports(base, cand)
    assert comparison.launches_needed is None
    change = change_of(comparison, "decode.tpot_s.p50")
    assert change.p_value == pytest.approx(2 / 924)
    assert change.p_adjusted == pytest.approx(8 * 2 / 924)
    assert "(p = 0.017, adjusted for 8 metrics)" in comparison.headline
    assert (change.basis, change.change) == (Basis.LAUNCHES, Change.WORSE)
    rate = change_of(comparison, "decode.tokens_per_s.p50")
    assert rate.change is Change.WORSE
    assert rate.ratio is not None
    assert rate.ratio.point < 1


def test_launches_of_the_same_code_show_none() -> None:
    base = [slower(1.0, seed) for seed in range(4)]
    cand = [slower(1.0, seed) for seed in (10, 12, 14, 16)]
    changes = compare_reports(base, cand).metrics
    assert {one.change for one in changes} <= {Change.NOT_SHOWN, Change.EQUAL}


def test_an_exact_count_needs_no_statistics() -> None:
    record = a_run_record()
    engine = record.engine.model_copy(
        update={"kv_bytes_reserved": 2 * record.engine.kv_bytes_reserved}
    )
    comparison = compare_reports(
        [a_report(record)], [a_report(record.model_copy(update={"engine": engine}))]
    )
    change = change_of(comparison, "kv_cache.reserved_bytes")
    assert (change.basis, change.change) == (Basis.EXACT, Change.WORSE)
    assert change.ratio is not None
    assert change.ratio.point == 2.0
    assert change_of(comparison, "weights.bytes").change is Change.EQUAL


def test_parts_of_the_difference_sum_to_it() -> None:
    base, cand = a_report(), slower(1.5)
    comparison = compare_reports([base], [cand])
    for phase in (Phase.PREFILL, Phase.DECODE):
        parts = [one for one in comparison.parts if one.phase is phase]
        steps = [
            next(led for led in report.ledgers if led.phase is phase).step_s.point
            for report in (base, cand)
        ]
        total = sum(one.difference_s.point for one in parts)
        assert total == pytest.approx(steps[1] - steps[0], rel=1e-6)


def test_the_headline_names_the_part_that_moved() -> None:
    """Only of a difference that is shown: without one there is nothing to explain."""
    baseline, candidate = [a_report()] * 6, [slower(1.5)] * 6
    assert "most of it loss: +" in compare_reports(baseline, candidate).headline
    assert compare_reports(baseline[:1], candidate[:1]).headline.startswith("Too few launches")


def test_a_switch_is_listed_and_allowed() -> None:
    record = a_run_record()
    settings = record.settings.model_copy(
        update={"kv_cache": record.settings.kv_cache.model_copy(update={"block_tokens": 64})}
    )
    other = a_report(record.model_copy(update={"settings": settings}))
    comparison = compare_reports([a_report(record)], [other])
    assert [(one.key, one.baseline, one.candidate) for one in comparison.settings] == [
        ("kv_cache.block_tokens", "16", "64")
    ]


def with_batch(record: RunRecord, batch: int) -> RunRecord:
    workload = record.settings.workload.model_copy(update={"batch": batch})
    return record.model_copy(
        update={"settings": record.settings.model_copy(update={"workload": workload})}
    )


def test_other_work_is_refused_and_forced_with_the_reason() -> None:
    base, cand = a_report(), a_report(with_batch(a_run_record(), 4))
    with pytest.raises(NotComparableError, match=r"workload.batch is 1 and 4") as caught:
        compare_reports([base], [cand])
    assert caught.value.exit_code == 4
    assert compare_reports([base], [cand], force=True).not_comparable == (
        "workload.batch is 1 and 4",
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"versions": {"torch": "2.14.0", "llmprof": "0.1.0"}}, "torch is 2.13.0+cpu and 2.14.0"),
        ({"versions": {"torch": "2.13.0+cpu", "llmprof": "0.2.0"}}, "llmprof is 0.1 and 0.2"),
        ({"fingerprint": "ffff"}, "the fingerprints differ: 0123456789abcdef and ffff"),
    ],
)
def test_another_machine_or_software_is_named(change: dict[str, object], said: str) -> None:
    record = a_run_record()
    other = record.environment.model_copy(update=change)
    assert why_not_comparable(record, record.model_copy(update={"environment": other})) == (said,)


def test_threads_are_a_setting_although_the_fingerprint_holds_them() -> None:
    record = a_run_record()
    other = record.environment.model_copy(update={"threads": 1, "fingerprint": "ffff"})
    assert why_not_comparable(record, record.model_copy(update={"environment": other})) == ()


def test_a_patch_release_of_llmprof_is_the_same_tool() -> None:
    record = a_run_record()
    versions = {**record.environment.versions, "llmprof": "0.1.7"}
    other = record.environment.model_copy(update={"versions": versions})
    assert why_not_comparable(record, record.model_copy(update={"environment": other})) == ()


def test_the_same_settings_on_other_attention_kernels_are_named() -> None:
    """As where Triton worked on one day and not on the next; asked for, it is the comparison itself."""
    record = a_run_record()
    one, other = (
        record.model_copy(
            update={"engine": record.engine.model_copy(update={"attention_backend": backend})}
        )
        for backend in ("native", "flashinfer 0.6.14")
    )
    said = "attention.backend=auto took native and flashinfer 0.6.14"
    assert why_not_comparable(one, other) == (said,)
    assert why_not_comparable(record, other) == ()
    asked = RunConfig.model_validate(
        {**other.settings.model_dump(), "attention": {"backend": "flashinfer"}}
    )
    assert why_not_comparable(one, other.model_copy(update={"settings": asked})) == ()


def test_another_model_is_other_work() -> None:
    record = a_run_record()
    assert record.model is not None
    deeper = record.model.model_copy(update={"num_hidden_layers": 33})
    assert why_not_comparable(record, record.model_copy(update={"model": deeper}))
    renamed = record.model.model_copy(update={"name": "copy of it"})
    assert not why_not_comparable(record, record.model_copy(update={"model": renamed}))


def test_a_noise_floor_is_told_and_claims_nothing() -> None:
    floors = {"decode.tpot_s.p50": 0.023}
    comparison = compare_reports([a_report()], [slower(1.5)], noise_floors=floors)
    change = change_of(comparison, "decode.tpot_s.p50")
    assert (change.noise_floor, change.change) == (0.023, Change.NOT_SHOWN)
    assert "launches differ by 2.3 % here" in comparison.headline


def test_a_part_is_most_of_a_difference_only_where_it_is_more_than_half() -> None:
    comparison = compare_reports([a_report()] * 6, [slower(1.5)] * 6)
    (first, *others) = (one for one in comparison.parts if one.phase is Phase.DECODE)

    def told(*differences_s: float) -> str:
        changes = [
            one.model_copy(update={"difference_s": estimate(difference_s)})
            for one, difference_s in zip([first, *others], differences_s, strict=False)
        ]
        return headline(comparison.metrics, changes)

    assert "most of it weights: +3" in told(3e-3, 1e-3, 1e-3)
    assert "its largest part weights: +2" in told(2e-3, 1e-3, 1e-3)


def estimate(value: float) -> Estimate:
    return Estimate(point=value, low=value, high=value, confidence=0.0, num_samples=1)
