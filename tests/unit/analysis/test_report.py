import subprocess
import sys

import pytest

from llmprof.analysis.report import build_report
from llmprof.errors import InputError
from llmprof.renderers.provenance import kernel_facts
from llmprof.renderers.what_ran import Fact
from llmprof.schema.cost import ByteTraffic, OpGroup, Phase
from llmprof.schema.measurement import Caveat
from llmprof.schema.report import Report
from llmprof.schema.run import DeviceTelemetry, RunRecord
from tests.records import OpPlan, PhasePlan, a_manifest, a_report, a_run_record, model_phase

WEIGHTS = OpPlan(
    group=OpGroup.LM_HEAD, calls=1, flops=3e8, traffic=ByteTraffic(weights=3e8), time_s=0.010
)


def _caveat(record: RunRecord, code: str) -> Caveat:
    return next(one for one in build_report(record).caveats if one.code == code)


def test_the_default_run_is_judged_as_it_was_planned() -> None:
    report = a_report()
    prefill, decode = report.verdicts
    assert (prefill.limit.value, decode.limit.value) == ("compute", "memory")
    assert report.headline == (
        "Decode spends 93 % of its time in ops that move data and reaches 79 % of its roof: it reads "
        "269 MB of weights for each token and keeps arithmetic 2.1 % busy. Prefill handles 46.1 x as "
        "many tokens per second with the same weights."
    )
    assert [caveat.code for caveat in report.caveats] == ["counted"]


def test_a_report_survives_the_file() -> None:
    report = a_report()
    assert Report.model_validate_json(report.model_dump_json()) == report


def test_building_twice_gives_the_same_report() -> None:
    assert a_report() == a_report()


def test_a_models_costs_are_recomputed_from_its_shape() -> None:
    record = a_run_record().model_copy(update={"stated_costs": ()})
    prefill, decode = build_report(record).costs
    # 106.2 M parameters in the projections of 30 layers, a head of 28.3 M, attention over 516 + 1
    layers = 30 * 576 * (960 + 576 + 3 * 1536)
    attention = 30 * 4 * 9 * 64
    assert decode.shape.cached_tokens == 516
    assert decode.flops == 2 * (layers + 49152 * 576) + attention * 517
    assert prefill.flops == 2 * (512 * layers + 49152 * 576) + attention * 512 * 513 / 2


def test_a_run_without_model_or_costs_is_timed_and_not_judged() -> None:
    record = a_run_record(model=False).model_copy(update={"stated_costs": ()})
    report = build_report(record)
    assert (report.costs, report.points, report.ledgers) == ((), (), ())
    assert len(report.phases) == 2
    assert "neither a model nor a cost" in report.verdicts[0].sentence


def test_a_run_that_was_cut_in_warm_up_makes_an_empty_report() -> None:
    record = a_run_record(rounds=0, grouped_rounds=0, read_bytes_per_s=[30e9], status="partial")
    report = build_report(record)
    assert report.phases == ()
    assert report.verdicts == ()
    assert report.latency.ttft_s is None
    assert report.headline.startswith("Nothing was measured")
    assert _caveat(record, "partial").message.endswith("interrupted in round 3")


def test_one_round_is_shown_without_an_interval() -> None:
    report = build_report(a_run_record(rounds=1, grouped_rounds=1))
    assert report.phases[0].step_s.confidence == 0
    assert {caveat.code for caveat in report.caveats} == {"counted", "few-rounds"}
    assert all(verdict.limit.value == "inconclusive" for verdict in report.verdicts)


def test_few_rounds_say_what_their_intervals_cover() -> None:
    message = _caveat(a_run_record(rounds=5), "few-rounds").message
    assert message == "5 clean and 5 grouped rounds: intervals are min to max and cover 94 %"
    fewer = _caveat(a_run_record(rounds=9, grouped_rounds=3), "few-rounds").message
    assert fewer == "9 clean and 3 grouped rounds: intervals are min to max and cover 75 %"
    one = _caveat(a_run_record(rounds=1, grouped_rounds=0), "few-rounds").message
    assert one == "1 clean round: intervals say nothing"


def test_a_fixed_cost_above_what_ops_take_is_said() -> None:
    norm = OpPlan(group=OpGroup.NORM, calls=60, time_s=60 * 3e-6)
    plan = PhasePlan(phase=Phase.DECODE, ops=(norm, WEIGHTS))
    caveat = _caveat(a_run_record((plan,), alpha_s=9e-6), "fixed-cost-high")
    assert caveat.message.startswith("norm: the fixed cost of 9.00 µs per op")
    assert "is more than these ops take" in caveat.message


def test_a_fixed_cost_that_leaves_no_room_for_the_link_is_said() -> None:
    """9 ms of link and 1.8 ms of fixed cost in an op that takes 10 ms."""
    tight = OpPlan(
        group=OpGroup.LM_HEAD,
        calls=200,
        flops=3e8,
        traffic=ByteTraffic(weights=2.7e8),
        time_s=0.010,
    )
    plan = PhasePlan(phase=Phase.DECODE, ops=(tight,))
    message = _caveat(a_run_record((plan,), alpha_s=9e-6), "fixed-cost-high").message
    assert "and the link together are more than these ops take" in message


def test_groups_that_were_timed_and_not_costed_are_said() -> None:
    norm = OpPlan(group=OpGroup.NORM, calls=60, time_s=0.0003)
    record = a_run_record((PhasePlan(phase=Phase.DECODE, ops=(WEIGHTS, norm)),))
    (cost,) = record.stated_costs
    partial = cost.model_copy(update={"ops": cost.ops[:1]})
    record = record.model_copy(update={"stated_costs": (partial,)})
    assert "2.9 % of the step" in _caveat(record, "unmapped").message


def test_a_throttled_device_is_said() -> None:
    record = a_run_record()
    hot = DeviceTelemetry(event_reasons=("gpu_idle", "hw_thermal_slowdown"))
    first, *others = record.rounds
    rounds = (first.model_copy(update={"telemetry": hot}), *others)
    message = _caveat(record.model_copy(update={"rounds": rounds}), "throttled").message
    assert "1 of 8 rounds: hw thermal slowdown" in message


def test_a_damaged_record_is_an_error_of_one_line() -> None:
    record = a_run_record()
    first, *others = record.rounds
    still = first.steps[0].model_copy(update={"duration_s": 0.0})
    rounds = (first.model_copy(update={"steps": (still,)}), *others)
    with pytest.raises(InputError, match="took no time"):
        build_report(record.model_copy(update={"rounds": rounds}))
    manifest = a_manifest()
    lacking = manifest.model_copy(update={"tensors": manifest.tensors[:5]})
    damaged = record.model_copy(update={"stated_costs": (), "weights": lacking})
    with pytest.raises(InputError, match="does not fit together"):
        build_report(damaged)


def test_random_weights_are_stamped() -> None:
    assert "random" in _caveat(a_run_record(random_weights=True), "random-weights").message


def test_fused_products_of_floats_are_told_of_where_a_step_has_few_enough_rows() -> None:
    record = a_run_record()

    def codes(**engine: int) -> set[str]:
        changed = record.model_copy(update={"engine": record.engine.model_copy(update=engine)})
        return {one.code for one in build_report(changed).caveats}

    assert record.settings.workload.batch == 1
    assert "fused-kernels" not in codes()
    assert "fused-kernels" in codes(fused_rows=16)
    assert "fused-kernels" not in codes(fused_rows=16, packed_rows=32)


def test_what_torch_compile_did_is_told() -> None:
    record = a_run_record()
    assert not {one.code for one in build_report(record).caveats} & {
        "compiled-steps",
        "compiled-while-timed",
    }
    engine = record.engine.model_copy(update={"compiled_steps": 2, "compile_s": 41.0})
    compiled = record.model_copy(update={"engine": engine})
    assert "one kernel of several ops" in _caveat(compiled, "compiled-steps").message
    assert "compiled-while-timed" not in {one.code for one in build_report(compiled).caveats}
    first, *others = compiled.rounds
    late = (first.model_copy(update={"compiled_steps": 1}), *others)
    timed = compiled.model_copy(update={"rounds": late})
    assert (
        "compiled 1 step in the measured rounds" in _caveat(timed, "compiled-while-timed").message
    )


def test_attention_that_fell_back_says_why_and_on_what_it_ran() -> None:
    record = a_run_record()
    assert "attention-backend" not in {one.code for one in build_report(record).caveats}
    fallen = {"attention_backend": "torch", "attention_fallback": "native: gcc is not installed"}
    engine = record.engine.model_copy(update=fallen)
    report = build_report(record.model_copy(update={"engine": engine}))
    (said,) = (one.message for one in report.caveats if one.code == "attention-backend")
    assert "ran on torch" in said
    assert said.endswith("native: gcc is not installed")
    assert Fact("attention.backend", "torch") in kernel_facts(report)


def test_caveats_of_the_profiler_travel_along() -> None:
    own = Caveat(code="outputs-differ", message="two rounds gave different tokens")
    assert _caveat(a_run_record(caveats=(own, own)), "outputs-differ") == own
    assert sum(one == own for one in build_report(a_run_record(caveats=(own, own))).caveats) == 1


def test_a_step_that_fits_in_the_cache_is_not_judged_by_memory_in_silence() -> None:
    tiny = OpPlan(
        group=OpGroup.LM_HEAD, flops=1e6, traffic=ByteTraffic(weights=10e6), time_s=0.0005
    )
    record = a_run_record((PhasePlan(phase=Phase.DECODE, ops=(tiny,)),))
    assert "9.54 MiB, less than the last-level cache (32.0 MiB)" in (
        _caveat(record, "cache-resident").message
    )


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"counted": False}, "ops-not-counted"),
        ({"grouped_rounds": 0}, "no-ledger"),
        ({"readings": False}, "no-ceilings"),
        ({"settled": False}, "not-settled"),
        ({"settled": None}, "not-tested"),
        ({"rounds": 8, "grouped_rounds": 4}, "few-rounds"),
    ],
)
def test_what_is_missing_is_said(options: dict[str, bool | int | None], code: str) -> None:
    _caveat(a_run_record(**options), code)  # type: ignore[arg-type]


def test_disturbing_instruments_are_said() -> None:
    plan = model_phase(Phase.DECODE)
    changed = {name: getattr(plan, name) for name in ("phase", "ops", "host_s", "steps")}
    record = a_run_record((PhasePlan(**changed, grouped_slowdown=1.3),))
    assert "grouped one" in _caveat(record, "grouped-scale").message


def test_headline_without_a_prefill_speaks_of_decode_alone() -> None:
    report = build_report(a_run_record((model_phase(Phase.DECODE, batch=8),)))
    assert (
        "its roof: it reads 269 MB of weights for each step of 8 tokens and keeps arithmetic"
        in report.headline
    )
    assert "refill" not in report.headline


def test_headline_without_a_ceiling_gives_the_speed_and_why_nothing_is_judged() -> None:
    report = build_report(a_run_record((model_phase(Phase.PREFILL),), readings=False))
    assert report.headline.startswith("Prefill handles 3,9")
    assert "No verdict on prefill: no ceiling was read" in report.headline
    both = build_report(a_run_record(readings=False)).headline
    assert both.count("no ceiling was read") == 1
    assert "No verdict on prefill and decode:" in both


def test_the_report_needs_neither_torch_nor_scipy() -> None:
    code = "import sys, llmprof.analysis.report; print(*(m for m in ('torch', 'scipy', 'pandas') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
