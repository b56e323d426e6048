"""The table of ops on records whose ops take what the test says."""

import pytest

from llmprof.analysis.report import build_report
from llmprof.analysis.trace_times import device_gaps
from llmprof.renderers.ops_text import ops_text
from llmprof.schema.cost import ByteTraffic, OpGroup, Phase
from llmprof.schema.ledger import Side
from llmprof.schema.ops import OpEntry, PhaseOps
from llmprof.schema.run import CountedOp, RunRecord
from llmprof.schema.trace import OpTimeline, Trace, TraceClock, TracedOp
from llmprof.store.settings_file import changed_settings
from tests.records import QUIET, OpPlan, PhasePlan, a_run_record
from tests.step_plans import ALPHA_S, MATMUL_FLOPS_PER_S, READ_BYTES_PER_S
from tests.traces import traced

WEIGHTS, FLOPS = 30e6, 4e9
PLAN = PhasePlan(
    phase=Phase.DECODE,
    steps=3,
    host_s=1e-3,
    ops=(
        OpPlan(
            group=OpGroup.DOWN_PROJECTION,
            time_s=6e-3,
            flops=FLOPS,
            calls=10,
            traffic=ByteTraffic(weights=WEIGHTS),
        ),
        OpPlan(group=OpGroup.ACTIVATION, time_s=1e-3, calls=10),
    ),
)
PRODUCT = TracedOp(op="aten.mm", group=OpGroup.DOWN_PROJECTION, multiplies=True)
SECOND = TracedOp(op="aten.bmm", group=OpGroup.DOWN_PROJECTION, multiplies=True)
UNPACK = TracedOp(op="llmprof.unpack_rows_", group=OpGroup.DOWN_PROJECTION, multiplies=False)
SILU = TracedOp(op="llmprof.silu_mul", group=OpGroup.ACTIVATION, multiplies=False)
STRAY = TracedOp(op="aten.arange", group=OpGroup.OTHER, multiplies=False)
LINK_S = max(WEIGHTS / READ_BYTES_PER_S, FLOPS / MATMUL_FLOPS_PER_S)


def table(*ops: tuple[TracedOp, float], record: RunRecord | None = None) -> PhaseOps:
    """Of a step whose ops take these times, one call each."""
    report = build_report(traced(record or a_run_record([PLAN], noise=0.0, model=False), ops))
    (found,) = report.ops
    return found


def entry(found: PhaseOps, op: str) -> OpEntry:
    return next(one for one in found.entries if one.op == op)


def test_an_op_is_judged_by_the_cost_of_its_group() -> None:
    found = table((PRODUCT, 5e-3), (SILU, 1e-3))
    product = entry(found, "aten.mm")
    assert product.roof_s == pytest.approx(ALPHA_S + LINK_S)
    assert product.loss_s.point == pytest.approx(5e-3 - ALPHA_S - LINK_S)
    assert product.side is Side.COMPUTE  # 3.3 ms of arithmetic beside 1 ms of memory
    assert product.achieved_flops_per_s == pytest.approx(FLOPS / 5e-3)
    assert product.achieved_bytes_per_s == pytest.approx(WEIGHTS / 5e-3)
    assert [one.op for one in found.entries] == ["aten.mm", "llmprof.silu_mul"]


def test_an_op_that_no_cost_asks_for_is_loss_but_for_its_fixed_cost() -> None:
    found = table((UNPACK, 2e-3), (PRODUCT, 5e-3), (SILU, 1e-3))
    unpack = entry(found, "llmprof.unpack_rows_")
    assert unpack.roof_s == pytest.approx(ALPHA_S)
    assert unpack.loss_s.point == pytest.approx(2e-3 - ALPHA_S)
    assert unpack.achieved_flops_per_s is None
    assert entry(found, "aten.mm").roof_s == pytest.approx(ALPHA_S + LINK_S)


def test_ops_that_share_a_roof_stand_in_one_row() -> None:
    found = table((PRODUCT, 4e-3), (SECOND, 2e-3), (SILU, 1e-3))
    both = entry(found, "aten.bmm + aten.mm")
    assert both.calls == 2
    assert both.time_s.point == pytest.approx(6e-3)
    assert both.roof_s == pytest.approx(2 * ALPHA_S + LINK_S)


def test_a_cost_finds_its_group_where_no_name_tells_which_op_multiplies() -> None:
    unnamed = PRODUCT.model_copy(update={"op": "nvkernel_7", "multiplies": False})
    assert entry(table((unnamed, 5e-3)), "nvkernel_7").flops == FLOPS


def test_what_recording_adds_is_taken_out() -> None:
    record = traced(
        a_run_record([PLAN], noise=0.0, model=False), ((PRODUCT, 5e-3),), seconds_per_op=1e-6
    )
    (found,) = build_report(record).ops
    assert entry(found, "aten.mm").time_s.point == pytest.approx(5e-3 - 1e-6)


def test_the_rest_of_the_clean_step_lies_between_the_ops() -> None:
    found = table((PRODUCT, 5e-3), (SILU, 1e-3), (STRAY, 0.5e-3))
    assert found.busy_s.point == pytest.approx(6.5e-3)
    assert found.step_s == pytest.approx(8e-3)
    assert found.between_s == pytest.approx(1.5e-3)
    assert found.unmapped_fraction == pytest.approx(0.5 / 6.5)
    assert (found.ops_per_step, found.ops_per_token) == (3, 3)
    assert found.mean_op_s == pytest.approx(6.5e-3 / 3)


def test_a_trace_that_does_not_fit_the_clean_step_says_so() -> None:
    record = traced(
        a_run_record([PLAN], noise=0.0, model=False), ((PRODUCT, 8.5e-3), (STRAY, 1e-3))
    )
    codes = {caveat.code for caveat in build_report(record).caveats}
    assert codes >= {"trace-slower", "trace-unmapped"}
    record = traced(a_run_record([PLAN], noise=0.0, model=False), ((PRODUCT, 7.9e-3),))
    codes = {caveat.code for caveat in build_report(record).caveats}
    assert not codes & {"trace-slower", "trace-unmapped"}


def test_without_a_formula_no_rate_of_arithmetic_is_claimed() -> None:
    record = a_run_record([PLAN], noise=0.0, model=False)
    unknown = CountedOp(
        op="lib.gemm",
        group=OpGroup.DOWN_PROJECTION,
        calls=1,
        flops=None,
        missing_formula=True,
    )
    steps = tuple(step.model_copy(update={"ops": (*step.ops, unknown)}) for step in record.counted)
    report = build_report(traced(record.model_copy(update={"counted": steps}), ((PRODUCT, 5e-3),)))
    assert all(one.achieved_flops_per_s is None for one in report.ops[0].entries)
    assert report.points == ()
    (caveat,) = [one for one in report.caveats if one.code == "no-flop-formula"]
    assert "lib.gemm" in caveat.message


def test_an_op_above_its_roof_and_a_busy_machine_are_named() -> None:
    """3.3 ms of arithmetic at the ceiling, done in 1 ms."""
    record = traced(a_run_record([PLAN], noise=0.0, model=False), ((PRODUCT, 1e-3),))
    caveats = {one.code: one.message for one in build_report(record).caveats}
    assert "aten.mm of down projection" in caveats["trace-above-roof"]
    assert "trace-contended" not in caveats
    busy = QUIET.model_copy(update={"run_queue_fraction": 0.5, "worst_thread_fraction": 0.5})
    rounds = tuple(one.model_copy(update={"contention": busy}) for one in record.traced)
    report = build_report(record.model_copy(update={"traced": rounds}))
    assert "trace-contended" in {one.code for one in report.caveats}
    text = ops_text(report, 200)
    assert "aten.mm of down projection: faster than the roof" in text
    assert "3 of 3 traced rounds were disturbed" in text


def test_a_trace_without_ops_says_so() -> None:
    """As of a profiler that may not record kernels."""
    report = build_report(traced(a_run_record([PLAN], noise=0.0, model=False), ()))
    assert report.ops == ()
    assert "trace-empty" in {caveat.code for caveat in report.caveats}


def test_a_run_without_a_tracing_pass_has_no_table() -> None:
    assert build_report(a_run_record([PLAN], model=False)).ops == ()


def test_the_device_waits_for_the_host_only_where_nothing_was_queued() -> None:
    """Kernels at 0-1, 3-4, 6-7 us: the second was launched in the gap, the third before it."""
    line = OpTimeline(
        round=0,
        step=0,
        op=(0, 0, 0),
        start_s=(0.0, 3e-6, 6e-6),
        duration_s=(1e-6,) * 3,
        launch_s=(-2e-6, 2e-6, 3.5e-6),
    )
    gaps = device_gaps(line)
    assert gaps.host_wait_s == pytest.approx(2e-6)
    assert gaps.idle_s == pytest.approx(4e-6)


def test_kernels_of_two_streams_are_one_timeline() -> None:
    """The second ends within the first: the gap begins where the first ends."""
    line = OpTimeline(
        round=0,
        step=0,
        op=(0, 0, 0),
        start_s=(0.0, 1e-6, 6e-6),
        duration_s=(5e-6, 1e-6, 1e-6),
        launch_s=(0.0, 0.0, 5.5e-6),
    )
    assert device_gaps(line).host_wait_s == pytest.approx(1e-6)


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="columns"):
        OpTimeline(round=0, step=0, op=(0,), start_s=(0.0, 1.0), duration_s=(1.0,))


def test_on_a_device_the_wait_is_part_of_the_table() -> None:
    record = traced(a_run_record([PLAN], noise=0.0, model=False), ((PRODUCT, 5e-3), (SILU, 1e-3)))
    assert record.trace is not None
    lines = tuple(
        line.model_copy(update={"launch_s": line.start_s}) for line in record.trace.timelines
    )
    trace = Trace(
        clock=TraceClock.DEVICE, ops=record.trace.ops, timelines=lines, seconds_per_op=0.0
    )
    (found,) = build_report(record.model_copy(update={"trace": trace})).ops
    assert found.host_wait_s == pytest.approx(0.0)


@pytest.mark.parametrize(("mode", "alpha_s"), [("eager", ALPHA_S), ("cuda_graph", 0.5e-6)])
def test_a_graph_starts_ops_at_its_own_fixed_cost(mode: str, alpha_s: float) -> None:
    """As the ledger of the phase has it."""
    record = a_run_record([PLAN], noise=0.0, model=False)
    fixed = record.ceilings.fixed_cost.model_copy(update={"graph_s": 0.5e-6})
    record = record.model_copy(
        update={
            "settings": changed_settings(record.settings, [f"execution.mode={mode}"]),
            "ceilings": record.ceilings.model_copy(update={"fixed_cost": fixed}),
        }
    )
    found = table((PRODUCT, 5e-3), (SILU, 1e-3), record=record)
    assert entry(found, "aten.mm").fixed_cost_s == pytest.approx(alpha_s)
