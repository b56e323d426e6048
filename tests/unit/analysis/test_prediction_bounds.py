"""Predictions: what bounds them, what they leave as it is, and what is said of a doubtful base."""

from dataclasses import replace

import pytest

from llmprof.analysis.prediction import BaseRun, predict
from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.prediction import KernelBenchmarks, OverheadTime
from llmprof.store.settings_file import changed_settings
from tests.predicted_runs import a_base_run, group_of, phase_of
from tests.records import QUIET
from tests.step_plans import ALPHA_S, model_phase

BASE = BaseRun.of(a_base_run())


@pytest.mark.parametrize(
    ("before", "after"), [("eager", "compiled"), ("compiled", "eager"), ("eager", "eager")]
)
@pytest.mark.parametrize("whole", [(), ((8e-3, 1e-3),), ((1e-3, 8e-3),)])
@pytest.mark.parametrize(
    "sets", [(), ("weights.quantization=int4",), ("workload.batch=8",), ("kv_cache.dtype=int8",)]
)
def test_every_point_lies_in_its_interval_and_no_time_is_negative(
    before: str, after: str, whole: tuple[tuple[float, float], ...], sets: tuple[str, ...]
) -> None:
    """Of starts too, whichever way they change; small products hold more of them than of work."""
    phases = [
        model_phase(phase, efficiency=30.0, host_s=0.0) for phase in (Phase.PREFILL, Phase.DECODE)
    ]
    record = a_base_run(phases=phases)
    settings = changed_settings(record.settings, [f"execution.mode={before}"])
    base = BaseRun.of(record.model_copy(update={"settings": settings}))
    overheads = [
        OverheadTime(phase=Phase.DECODE, group=None, base_s=base_s, target_s=target_s)
        for base_s, target_s in whole
    ]
    found = predict(
        base,
        changed_settings(settings, [f"execution.mode={after}", *sets]),
        benchmarks=KernelBenchmarks(overheads=tuple(overheads)),
    )
    for phase in found.phases:
        for one in (phase.step_s, *(group.predicted_s for group in phase.groups)):
            assert 0 <= one.low <= one.point <= one.high


def test_words_say_which_way_ops_are_started() -> None:
    compiled = changed_settings(BASE.record.settings, ["execution.mode=compiled"])
    base = BaseRun.of(BASE.record.model_copy(update={"settings": compiled}))
    for found, words in (
        (predict(base, BASE.record.settings), "no longer replayed"),
        (predict(BASE, compiled), "no longer started from Python"),
    ):
        for group in (OpGroup.NORM, None):
            assert words in group_of(phase_of(found), group).basis


SMALL = (OpGroup.EMBEDDING, OpGroup.NORM, OpGroup.ROPE, OpGroup.KV_APPEND, OpGroup.ACTIVATION)


def test_ops_of_replayed_steps_do_not_tell_what_starting_them_from_python_costs() -> None:
    """Small ops that a list starts take next to nothing; in the prefill beside them the cheapest is the
    choice of the one next token, 3.2 us: no start takes more."""
    prefill, decode = model_phase(Phase.PREFILL), model_phase(Phase.DECODE)
    replayed = tuple(
        replace(op, time_s=op.time_s / 50) if op.group in SMALL else op for op in decode.ops
    )
    record = a_base_run(phases=[prefill, replace(decode, ops=replayed)])
    compiled = changed_settings(record.settings, ["execution.mode=compiled"])
    base = BaseRun.of(record.model_copy(update={"settings": compiled}))
    norm = group_of(phase_of(predict(base, record.settings)), OpGroup.NORM)
    assert norm.base_s is not None
    assert norm.base_s == pytest.approx(61 * 3.2e-6 / 50)
    added_s = [
        (one - norm.base_s) / 61
        for one in (norm.predicted_s.low, norm.predicted_s.point, norm.predicted_s.high)
    ]
    assert added_s == pytest.approx([0.8e-6, 1.6e-6, 3.2e-6])
    assert "the least small op of prefill" in norm.basis
    assert not norm.is_measured


def test_without_a_prefill_the_range_of_a_start_says_how_little_is_known() -> None:
    record = a_base_run(phases=[model_phase(Phase.DECODE)])
    compiled = changed_settings(record.settings, ["execution.mode=compiled"])
    base = BaseRun.of(record.model_copy(update={"settings": compiled}))
    norm = group_of(phase_of(predict(base, record.settings)), OpGroup.NORM)
    assert norm.base_s is not None
    added = [(one - norm.base_s) / 61 for one in (norm.predicted_s.low, norm.predicted_s.high)]
    assert added == pytest.approx([ALPHA_S, 64 * ALPHA_S])


@pytest.mark.parametrize(("rounds", "codes"), [(1, ["few-rounds"] * 2), (2, [])])
def test_what_one_round_cannot_know_is_said(rounds: int, codes: list[str]) -> None:
    base = BaseRun.of(a_base_run(rounds=rounds))
    found = predict(base, changed_settings(base.record.settings, ["kv_cache.dtype=int8"]))
    assert [one.code for one in found.caveats] == codes


@pytest.mark.parametrize(("busy", "codes"), [(3, []), (4, ["contended"]), (8, ["contended"])])
def test_a_base_of_disturbed_rounds_is_doubtful(busy: int, codes: list[str]) -> None:
    """Of eight: half of them, or all, which are then used for want of others."""
    waiting = QUIET.model_copy(update={"worst_thread_fraction": 0.4})
    record = a_base_run(contention=[waiting] * busy + [QUIET] * (8 - busy))
    assert [one.code for one in predict(BaseRun.of(record), record.settings).caveats] == codes


def test_no_change_leaves_every_part_as_it_is() -> None:
    """The fixed cost too, where it was read beside the rounds: three times the cached one."""
    record = a_base_run()
    rounds = tuple(
        one.model_copy(
            update={
                side: reading.model_copy(update={"alpha_s": 3 * ALPHA_S})
                for side, reading in (("before", one.before), ("after", one.after))
                if reading is not None
            }
        )
        for one in record.rounds
    )
    base = BaseRun.of(record.model_copy(update={"rounds": rounds}))
    for phase in predict(base, record.settings).phases:
        for part in phase.parts:
            assert part.predicted_s == pytest.approx(part.base_s)
