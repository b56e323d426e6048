"""Measures the cells of a group, each predicted from the base run before it is loaded."""

import gc
import traceback
from dataclasses import dataclass, field

from llmprof.analysis.prediction import BaseRun, predict
from llmprof.engine.kept_weights import KeptWeights
from llmprof.errors import CapabilityError, LlmprofError
from llmprof.profiler import profile
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from llmprof.store.documents import write_document
from llmprof.store.runs import find_run, save_run
from llmprof.store.settings_file import load_settings
from scripts.gpu.cells import Cell, base_settings, cells
from scripts.gpu.job import Job, in_one_line, read_found
from scripts.gpu.lost_device import LostDeviceError, is_lost

BASE = "base"


@dataclass(frozen=True, slots=True)
class CellsOfGroup:
    """The work of one process."""

    job: Job
    group: str
    kept: KeptWeights = field(default_factory=KeptWeights)
    """Cells that differ in workload, cache, attention or mode alone load their weights once."""

    def run(self) -> None:
        """Every cell of the group, in order; one that cannot run is told with its reason.

        Raises:
            LostDeviceError: none of those that are left can be measured in this process.
        """
        ended = read_found(self.job.folder)
        for cell in cells(self.job.device):
            if cell.group != self.group or f"cell-{cell.name}" in ended:
                continue
            if self.job.left_s < cell.least_s:
                words = f"it needs {cell.least_s:.0f} s, and its group had fewer left"
                self._not_measured(cell, words)
                continue
            if not self._has_measured(cell) and is_lost(self.job.device):
                raise LostDeviceError(f"the GPU was lost at the cell {cell.name}")
            _free_memory(self.job)

    def _has_measured(self, cell: Cell) -> bool:
        """What stopped it is written down."""
        try:
            self._measure(cell)
        except LlmprofError as error:
            self._not_measured(cell, str(error).partition("\n")[0])
            if not isinstance(error, CapabilityError):
                self.kept.drop()  # the next cell has all of the memory
            return False
        except Exception as error:  # noqa: BLE001 (Triton's own errors are of no other kind)
            traceback.print_exc()
            self._not_measured(cell, in_one_line(error))
            self.kept.drop()
            return False
        return True

    def _measure(self, cell: Cell) -> None:
        config = self._config(cell)
        predicted = None if cell.name == BASE else self._predicted(cell, config)
        record = profile(config, argv=("llmprof", "run", cell.name), kept=self.kept)
        saved = save_run(record)
        self.job.found(
            f"cell-{cell.name}",
            {"run": record.id, "file": saved.name, **(predicted or {})},
        )

    def _config(self, cell: Cell) -> RunConfig:
        settings = {**base_settings(self.job.device), **cell.changes}
        return load_settings(self.job.model, settings, [])

    def _predicted(self, cell: Cell, config: RunConfig) -> dict[str, str]:
        """Written down before the arm is loaded; why not, where there is no prediction."""
        base = _base_run(self.job)
        if base is None:
            return {"not_predicted": "the base was not measured"}
        try:
            prediction = predict(BaseRun.of(base), config)
        except LlmprofError as error:
            return {"not_predicted": str(error)}
        path = self.job.folder / "predictions" / f"{cell.name}.json"
        path.parent.mkdir(exist_ok=True)
        write_document(path, prediction)
        return {"prediction": path.name}

    def _not_measured(self, cell: Cell, reason: str) -> None:
        self.job.found(f"cell-{cell.name}", {"not_measured": reason})


def _base_run(job: Job) -> RunRecord | None:
    found = read_found(job.folder).get(f"cell-{BASE}", {})
    return find_run(found["run"]) if "run" in found else None


def _free_memory(job: Job) -> None:
    gc.collect()
    if job.on_gpu:
        import torch

        torch.cuda.empty_cache()
