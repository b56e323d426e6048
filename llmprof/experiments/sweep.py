"""A grid of runs: cheapest cells first, each saved as it ends, taken up again after any end."""

import gc
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from llmprof.analysis.batch_choice import batch_choices
from llmprof.analysis.cell_metrics import cell_metrics
from llmprof.analysis.report import build_report
from llmprof.engine.kept_weights import KeptWeights
from llmprof.errors import CapabilityError, InputError, LlmprofError, MeasurementFailedError
from llmprof.experiments.sweep_plan import SweepPlan, plan_sweep
from llmprof.experiments.visits import joined, visit_settings
from llmprof.profiler import profile
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from llmprof.schema.sweep import CellStatus, Sweep, SweepCell
from llmprof.store.progress import NullProgress, Progress
from llmprof.store.runs import find_run, save_run
from llmprof.store.sweeps import check_sweeps_writable, finished_run_since, save_sweep, sweep_lock

_ENDED: Final = (CellStatus.MEASURED, CellStatus.REFUSED, CellStatus.FAILED)


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Signals:
    """How the caller keeps Ctrl-C away while something is written."""

    hold: Callable[[], None] = _nothing
    release: Callable[[], None] = _nothing
    """Raises KeyboardInterrupt if one has come since `hold`."""


def run_sweep(
    config: RunConfig,
    *,
    argv: tuple[str, ...] = (),
    fresh: bool = False,
    progress: Progress | None = None,
    signals: Signals | None = None,
) -> Sweep:
    """Measure every cell of `config.sweep.grid` that the saved sweep does not have yet.

    A cell that cannot run stays as a row with the reason. An interrupted sweep comes back with the
    status `partial`.

    Raises:
        InputError: settings or a model that no cell can run with, a folder that is not writable, or
            a sweep that another process measures.
    """
    progress = progress or NullProgress()
    check_sweeps_writable()
    with ExitStack() as held:
        plan = plan_sweep(
            config,
            argv=argv,
            fresh=fresh,
            progress=progress,
            claim=lambda identifier: held.enter_context(sweep_lock(identifier)),
        )
        session = _Session(plan, progress, signals or Signals())
        session.recover()
        session.tell_what_is_there()
        session.save()
        try:
            for visit in range(config.sweep.interleave):
                for place, index in enumerate(plan.cheapest_first()):
                    session.visit(index, visit, place)
        except KeyboardInterrupt:
            session.interrupted()
        else:
            session.finished()
        return session.sweep


@dataclass
class _Session:
    """One process's work on a sweep; the document on disk is always that of `sweep`."""

    plan: SweepPlan
    progress: Progress
    signals: Signals
    sweep: Sweep = field(init=False)
    kept: KeptWeights = field(default_factory=KeptWeights)
    """Of the cell before: cells that differ in workload, cache or attention alone load them once."""

    def __post_init__(self) -> None:
        self.sweep = self.plan.sweep

    def recover(self) -> None:
        """Find the run that was saved by a process which ended before it could say so here."""
        known = frozenset(run_id for one in self.sweep.cells for run_id in one.run_ids)
        begun = [cell for cell in self.sweep.cells if cell.status is CellStatus.RUNNING]
        for cell in begun:
            record = finished_run_since(self.sweep.updated, self._config(cell.index), known)
            if record is not None:
                self._keep(cell, record)

    def tell_what_is_there(self) -> None:
        ended = sum(cell.status in _ENDED for cell in self.sweep.cells)
        if ended:
            self.progress.note(
                f"{ended} of {len(self.sweep.cells)} cells were measured before (begun "
                f"{self.sweep.created:%Y-%m-%d %H:%M} UTC); --fresh measures them again"
            )

    def visit(self, index: int, visit: int, place: int) -> None:
        """Measure one cell once, unless it has had this visit or has ended."""
        cell = self.sweep.cells[index]
        if cell.status in _ENDED or len(cell.run_ids) > visit:
            return
        total = len(self.sweep.cells)
        self.progress.note(f"cell {place + 1} of {total}: {_spelled(cell)}")
        begun = self._update(cell, status=CellStatus.RUNNING, attempts=cell.attempts + 1)
        self.save()
        config = self._config(index)
        try:
            record = profile(
                config,
                argv=self.sweep.tool.argv,
                progress=self.progress,
                before_saving=self.signals.hold,
                kept=self.kept,
            )
        except (MeasurementFailedError, MemoryError) as error:
            self._end(begun, CellStatus.FAILED, error)
        except LlmprofError as error:
            self._end(begun, CellStatus.REFUSED, error)
        else:
            self._keep(begun, record)
        self.save()
        if self.sweep.cells[index].status is CellStatus.FAILED:
            self.kept.drop()  # the next cell has all of the memory, and weights that nothing touched
        _free_memory()
        self.signals.release()

    def _config(self, index: int) -> RunConfig:
        return visit_settings(self.plan.configs[index], self.plan.sweep.base.sweep.interleave)

    def _keep(self, cell: SweepCell, record: RunRecord) -> None:
        """The run first, then the row that names it."""
        save_run(record)
        earlier = [find_run(run_id) for run_id in cell.run_ids]
        complete = record.status == "complete"
        run_ids = (*cell.run_ids, record.id) if complete else cell.run_ids
        status, reason = self._standing(record, len(run_ids))
        self._update(
            cell,
            status=status,
            reason=reason,
            exit_code=MeasurementFailedError.exit_code if record.failed else None,
            attempts=0,
            run_ids=run_ids,
            metrics=cell_metrics(build_report(joined([*earlier, record]))),
        )
        if status is CellStatus.PARTIAL and not complete:
            self.save()
            raise KeyboardInterrupt

    def _standing(self, record: RunRecord, visits: int) -> tuple[CellStatus, str | None]:
        """Of a cell after its latest run, with so many complete ones."""
        wanted = self.sweep.base.sweep.interleave
        if record.failed:
            return CellStatus.FAILED, record.status_reason
        if record.status == "partial":
            return CellStatus.PARTIAL, record.status_reason
        if visits < wanted:
            return CellStatus.PARTIAL, f"{visits} of {wanted} visits"
        return CellStatus.MEASURED, None

    def _end(self, cell: SweepCell, status: CellStatus, error: Exception) -> None:
        known = (
            error if isinstance(error, LlmprofError) else MeasurementFailedError("out of memory")
        )
        reason = known.line()
        self._update(cell, status=status, reason=reason, exit_code=known.exit_code, attempts=0)
        self.progress.note(f"{status.value}: {reason}")

    def interrupted(self) -> None:
        """Keep what is there; the cell that was being measured is as before."""
        self.signals.hold()
        for cell in self.sweep.cells:
            if cell.status is CellStatus.RUNNING:
                before = CellStatus.PARTIAL if cell.run_ids else CellStatus.PENDING
                self._update(cell, status=before, attempts=0)
        self._close("interrupted")

    def finished(self) -> None:
        self.signals.hold()
        self._close(None)

    def _close(self, because: str | None) -> None:
        ended = sum(cell.status in _ENDED for cell in self.sweep.cells)
        total = len(self.sweep.cells)
        complete = ended == total
        choices = batch_choices(self.sweep.axes, self.sweep.cells, self.sweep.base.sweep)
        self._change(
            status="complete" if complete else "partial",
            status_reason=None if complete else f"{because} after {ended} of {total} cells",
            choices=choices,
        )
        self.save()

    def _update(self, cell: SweepCell, **changes: Any) -> SweepCell:
        changed = cell.model_copy(update=changes)
        cells = list(self.sweep.cells)
        cells[cell.index] = changed
        self._change(cells=tuple(cells))
        return changed

    def _change(self, **changes: Any) -> None:
        self.sweep = self.sweep.model_copy(update={**changes, "updated": datetime.now(UTC)})

    def save(self) -> None:
        save_sweep(self.sweep)


def check_measured(sweep: Sweep) -> None:
    """Raise what became of the cells if not one of a finished sweep was measured.

    Raises:
        LlmprofError: of the kind of the first cell that failed, else of the first one refused.
    """
    if sweep.status == "partial" or any(cell.metrics is not None for cell in sweep.cells):
        return
    failed = [cell for cell in sweep.cells if cell.status is CellStatus.FAILED]
    first = (failed or sweep.cells)[0]
    kinds = {kind.exit_code: kind for kind in (InputError, CapabilityError)}
    kind = kinds.get(first.exit_code or 0, MeasurementFailedError)
    raise kind(f"no cell was measured; {_spelled(first)}: {first.reason}")


def _spelled(cell: SweepCell) -> str:
    return ", ".join(f"{key}={value}" for key, value in cell.changes.items())


def _free_memory() -> None:
    """What a run leaves beside the weights must be gone before the next one is asked if it fits."""
    gc.collect()
    import torch

    torch.cuda.empty_cache()  # does nothing where no GPU was used
