"""A cell that fails costs itself, whatever it fails with, and the GPU that it takes along."""

import time
from pathlib import Path

import pytest
import torch

from scripts.gpu import measure_cells
from scripts.gpu.cells import Cell
from scripts.gpu.job import Job, read_found
from scripts.gpu.lost_device import LostDeviceError, is_lost
from scripts.gpu.measure_cells import CellsOfGroup


class CompilationError(Exception):
    """As Triton's own: no RuntimeError, and its words begin with source."""

    error_message = "cannot take fp8e4nv on this architecture"

    def __str__(self) -> str:
        return f"at 12:4:\n    x = tl.load(p)\n{self.error_message}"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Four cells of one group, of which the second fails: those that were begun."""
    begun: list[str] = []

    def measure(self: CellsOfGroup, cell: Cell) -> None:
        begun.append(cell.name)
        if cell.name == "2":
            raise CompilationError
        self.job.found(f"cell-{cell.name}", {"run": cell.name})

    monkeypatch.setattr(
        measure_cells, "cells", lambda device: tuple(Cell(name, group="g") for name in "1234")
    )
    monkeypatch.setattr(CellsOfGroup, "_measure", measure)
    return begun


def group_of(folder: Path) -> CellsOfGroup:
    return CellsOfGroup(Job("cpu", "m", folder, 600.0, time.perf_counter()), "g")


def test_whatever_a_cell_fails_with_the_next_one_is_measured(
    measured: list[str], tmp_path: Path
) -> None:
    group_of(tmp_path).run()
    assert measured == ["1", "2", "3", "4"]
    assert read_found(tmp_path)["cell-2"] == {
        "not_measured": "CompilationError: cannot take fp8e4nv on this architecture"
    }


def test_cells_after_one_that_lost_the_gpu_are_left_to_another_process(
    measured: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure_cells, "is_lost", lambda device: True)
    with pytest.raises(LostDeviceError, match="at the cell 2"):
        group_of(tmp_path).run()
    monkeypatch.setattr(measure_cells, "is_lost", lambda device: False)
    group_of(tmp_path).run()
    assert measured == ["1", "2", "3", "4"]


def test_a_gpu_that_no_process_has_touched_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(device: str) -> None:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", wait)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert not is_lost("cuda:0")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert is_lost("cuda:0")
    assert not is_lost("cpu")
