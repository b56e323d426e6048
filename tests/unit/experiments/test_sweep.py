"""The order, the resuming and the rows of a sweep; what a cell measures is set by the test."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from llmprof.errors import (
    CapabilityError,
    InputError,
    LlmprofError,
    MeasurementFailedError,
)
from llmprof.experiments.sweep import Signals, check_measured, run_sweep
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from llmprof.schema.sweep import CellStatus, Sweep
from llmprof.store.runs import find_run, new_run_id, save_run
from llmprof.store.settings_file import load_settings
from llmprof.store.sweeps import load_sweep, save_sweep
from tests.records import a_run_record
from tests.sweeps import measured_ceilings
from tests.tiny_decoders import LLAMA

Outcome = Callable[[RunConfig], RunRecord]


def a_run_of(config: RunConfig) -> RunRecord:
    created = datetime.now(UTC)
    return a_run_record(rounds=2, grouped_rounds=0).model_copy(
        update={"id": new_run_id(created, config), "created": created, "settings": config}
    )


class Bench:
    """Stands for `profile`: notes what it is asked for, and does what the test says."""

    def __init__(self) -> None:
        self.asked: list[RunConfig] = []
        self.outcome: Outcome = a_run_of

    def __call__(self, config: RunConfig, **_: object) -> RunRecord:
        self.asked.append(config)
        return self.outcome(config)

    @property
    def batches(self) -> list[int]:
        return [config.workload.batch for config in self.asked]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLMPROF_DIR", raising=False)
    (tmp_path / "config.json").write_text(json.dumps(dict(LLAMA.config)))
    ceilings = measured_ceilings()
    monkeypatch.setattr("llmprof.experiments.sweep_plan.cached_ceilings", lambda *_, **__: ceilings)
    bench = Bench()
    monkeypatch.setattr("llmprof.experiments.sweep.profile", bench)
    return bench


def settings(*grids: str, **keys: object) -> RunConfig:
    flags = {key.replace("__", "."): value for key, value in keys.items()}
    return load_settings("config.json", {"weights.source": "random"} | flags, [], grids)


BATCHES = settings("workload.batch=4,1,2")


def statuses(sweep: Sweep) -> list[str]:
    return [cell.status.value for cell in sweep.cells]


def raising(error: BaseException, *, at: int) -> Outcome:
    def outcome(config: RunConfig) -> RunRecord:
        if config.workload.batch == at:
            raise error
        return a_run_of(config)

    return outcome


def test_cheapest_first_and_the_rows_in_the_order_of_the_grid(bench: Bench) -> None:
    sweep = run_sweep(BATCHES)
    assert bench.batches == [1, 2, 4]
    assert [cell.changes["workload.batch"] for cell in sweep.cells] == [4, 1, 2]
    assert statuses(sweep) == ["measured"] * 3
    assert (sweep.status, sweep.status_reason) == ("complete", None)
    predicted = [cell.predicted_round_s for cell in sweep.cells]
    assert predicted[1] < predicted[2] < predicted[0]  # type: ignore[operator]


def test_more_work_is_predicted_to_take_longer_in_every_kind_of_workload(bench: Bench) -> None:
    trace = {"workload__kind": "trace"}
    sweep = run_sweep(settings("workload.requests=8,4", **trace))
    assert [config.workload.requests for config in bench.asked] == [4, 8]
    assert all(cell.predicted_round_s for cell in sweep.cells)
    run_sweep(settings("kv_cache.layout=none,contiguous"))
    assert [config.kv_cache.layout.value for config in bench.asked[2:]] == ["contiguous", "none"]


def test_a_cell_has_its_settings_and_no_grid(bench: Bench) -> None:
    run_sweep(settings("workload.batch=1", "attention.kind=standard", measure__rounds=3))
    (config,) = bench.asked
    assert config.attention.kind == "standard"
    assert config.measure.rounds == 3
    assert config.sweep.grid == {}


def test_each_run_is_saved_as_it_ends_and_named_in_its_row(bench: Bench) -> None:
    sweep = run_sweep(BATCHES)
    for cell in sweep.cells:
        record = find_run(*cell.run_ids)
        assert record.settings.workload.batch == cell.changes["workload.batch"]
    assert load_sweep(sweep.id) == sweep


def test_out_of_memory_and_refusals_are_rows_with_the_reason(bench: Bench) -> None:
    bench.outcome = raising(MeasurementFailedError("out of memory while it ran"), at=2)
    sweep = run_sweep(BATCHES)
    assert statuses(sweep) == ["measured", "measured", "failed"]
    assert sweep.cells[2].reason == "out of memory while it ran"
    assert sweep.cells[2].exit_code == 6
    assert sweep.status == "complete"

    bench.outcome = raising(CapabilityError("needs 9 GiB", remedy="Shrink it"), at=4)
    sweep = run_sweep(BATCHES, fresh=True)
    assert statuses(sweep) == ["refused", "measured", "measured"]
    assert sweep.cells[0].reason == "needs 9 GiB. Shrink it"
    check_measured(sweep)


def test_python_s_own_memory_error_is_a_row_too(bench: Bench) -> None:
    bench.outcome = raising(MemoryError(), at=2)
    assert run_sweep(BATCHES).cells[2].reason == "out of memory"


def test_a_run_that_fails_later_keeps_its_rounds_and_the_others_go_on(bench: Bench) -> None:
    def outcome(config: RunConfig) -> RunRecord:
        late = {"status": "partial", "status_reason": "failed (out of memory)", "failed": True}
        record = a_run_of(config)
        return record.model_copy(update=late) if config.workload.batch == 1 else record

    bench.outcome = outcome
    sweep = run_sweep(BATCHES)
    assert statuses(sweep) == ["measured", "failed", "measured"]
    assert sweep.cells[1].metrics is not None
    assert sweep.cells[1].reason == "failed (out of memory)"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InputError("no"), InputError),
        (CapabilityError("no"), CapabilityError),
        (MeasurementFailedError("no"), MeasurementFailedError),
    ],
)
def test_no_cell_at_all_is_an_error_of_its_kind(
    bench: Bench, error: LlmprofError, kind: type[LlmprofError]
) -> None:
    def outcome(config: RunConfig) -> RunRecord:
        raise error

    bench.outcome = outcome
    with pytest.raises(kind, match="no cell was measured"):
        check_measured(run_sweep(BATCHES))


def test_ctrl_c_keeps_what_is_there_and_the_same_command_goes_on(bench: Bench) -> None:
    bench.outcome = raising(KeyboardInterrupt(), at=2)
    sweep = run_sweep(BATCHES)
    assert sweep.status == "partial"
    assert sweep.status_reason == "interrupted after 1 of 3 cells"
    assert statuses(sweep) == ["pending", "measured", "pending"]

    bench.outcome = a_run_of
    sweep = run_sweep(BATCHES)
    assert bench.batches == [1, 2, 2, 4]
    assert sweep.status == "complete"


def test_the_rounds_before_ctrl_c_are_shown_and_measured_again(bench: Bench) -> None:
    def outcome(config: RunConfig) -> RunRecord:
        return a_run_of(config).model_copy(
            update={"status": "partial", "status_reason": "interrupted after 2 of 8 rounds"}
        )

    bench.outcome = outcome
    sweep = run_sweep(BATCHES)
    assert statuses(sweep) == ["pending", "partial", "pending"]
    assert sweep.cells[1].metrics is not None
    bench.outcome = a_run_of
    assert run_sweep(BATCHES).cells[1].status is CellStatus.MEASURED
    assert bench.batches == [1, 1, 2, 4]


def test_a_signal_while_a_row_is_written_waits_for_it(bench: Bench) -> None:
    def release() -> None:
        raise KeyboardInterrupt

    sweep = run_sweep(BATCHES, signals=Signals(release=release))
    assert statuses(sweep) == ["pending", "measured", "pending"]


class Killed(BaseException):
    """Stands for the end of the process: nothing in the package may run after it."""


def killed_in(bench: Bench, batch: int) -> None:
    bench.outcome = raising(Killed(), at=batch)
    with pytest.raises(Killed):
        run_sweep(BATCHES)
    bench.outcome = a_run_of


def test_a_kill_loses_no_finished_cell(bench: Bench) -> None:
    killed_in(bench, 4)
    sweep = run_sweep(BATCHES)
    assert bench.batches == [1, 2, 4, 4]
    assert sweep.status == "complete"


def test_a_run_saved_just_before_the_kill_is_found_again(bench: Bench) -> None:
    killed_in(bench, 2)
    save_run(a_run_of(bench.asked[-1]))
    sweep = run_sweep(BATCHES)
    assert bench.batches == [1, 2, 4]
    assert statuses(sweep) == ["measured"] * 3


def test_a_cell_that_ends_process_after_process_is_given_up(bench: Bench) -> None:
    for _ in range(3):
        killed_in(bench, 2)
    sweep = run_sweep(BATCHES)
    assert statuses(sweep) == ["measured", "measured", "failed"]
    assert "killed, perhaps for lack of memory" in (sweep.cells[2].reason or "")


def test_what_was_measured_is_not_measured_again_unless_fresh(bench: Bench) -> None:
    first = run_sweep(BATCHES)
    limited = BATCHES.sweep.model_copy(update={"tpot_max_s": 1.0})
    again = run_sweep(BATCHES.model_copy(update={"sweep": limited}))
    assert bench.batches == [1, 2, 4]
    assert [cell.run_ids for cell in again.cells] == [cell.run_ids for cell in first.cells]
    assert (
        again.base.sweep.tpot_max_s == 1.0
    )  # another limit is another question, not another sweep
    run_sweep(BATCHES, fresh=True)
    assert bench.batches == [1, 2, 4] * 2


def test_a_refused_cell_is_tried_again_and_a_failed_one_is_not(bench: Bench) -> None:
    bench.outcome = raising(CapabilityError("full"), at=1)
    run_sweep(BATCHES)
    bench.outcome = a_run_of
    assert statuses(run_sweep(BATCHES)) == ["measured"] * 3
    bench.outcome = raising(MeasurementFailedError("out of memory"), at=1)
    run_sweep(BATCHES, fresh=True)
    bench.outcome = a_run_of
    assert statuses(run_sweep(BATCHES)) == ["measured", "failed", "measured"]


def test_another_model_file_is_another_sweep(bench: Bench, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    line = '{"prompt_tokens": 4, "output_tokens": 2}\n'
    trace.write_text(line)
    config = settings(
        "batching.max_sequences=1,2", workload__kind="trace", workload__file=str(trace)
    )
    first = run_sweep(config)
    trace.write_text(2 * line)
    assert run_sweep(config).id != first.id


def test_interleaved_cells_take_turns_and_their_rounds_are_joined(bench: Bench) -> None:
    config = settings("workload.batch=2,1", measure__rounds=4, sweep__interleave=2)
    sweep = run_sweep(config)
    assert bench.batches == [1, 2, 1, 2]
    assert {one.measure.rounds for one in bench.asked} == {2}
    for cell in sweep.cells:
        assert len(cell.run_ids) == 2
        assert cell.metrics is not None
        assert cell.metrics.num_rounds == 4


def test_an_interleaved_sweep_goes_on_in_the_middle(bench: Bench) -> None:
    config = settings("workload.batch=2,1", sweep__interleave=2)
    asked = iter([None, None, KeyboardInterrupt()])

    def outcome(cell: RunConfig) -> RunRecord:
        if stop := next(asked, None):
            raise stop
        return a_run_of(cell)

    bench.outcome = outcome
    partial = run_sweep(config)
    assert statuses(partial) == ["partial", "partial"]
    assert partial.cells[1].reason == "1 of 2 visits"
    assert run_sweep(config).status == "complete"
    assert bench.batches == [1, 2, 1, 1, 2]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (settings(), "a sweep needs an axis"),
        (settings("workload.batch=1-60", "workload.seed=1-60"), "the grid has 3600 cells"),
        (settings("workload.batch=1,x"), "grid, workload.batch=x: workload.batch is 'x'"),
        (settings("model=config.json,nothing-like-it"), "nothing-like-it"),
    ],
)
def test_what_no_cell_can_run_with_is_an_error_before_anything_is_measured(
    bench: Bench, config: RunConfig, says: str
) -> None:
    with pytest.raises(InputError) as caught:
        run_sweep(config)
    assert says in caught.value.line()
    assert bench.asked == []


def test_a_damaged_document_is_an_error_that_names_the_way_out(bench: Bench) -> None:
    sweep = run_sweep(BATCHES)
    file = Path(".llmprof/sweeps") / f"{sweep.id}.json"
    file.write_text(file.read_text()[:100])
    with pytest.raises(InputError) as caught:
        run_sweep(BATCHES)
    assert "truncated" in caught.value.line()
    assert "--fresh" in caught.value.line()
    save_sweep(sweep)
    assert run_sweep(BATCHES).status == "complete"
