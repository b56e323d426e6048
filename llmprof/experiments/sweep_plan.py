"""What a sweep is going to measure, and what of it an earlier process has measured already."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from math import prod
from pathlib import Path, PurePath
from typing import Final

from llmprof import __version__
from llmprof.analysis.batch_choice import batch_choices
from llmprof.architectures.source import ModelSource, resolve_model
from llmprof.ceilings.measure import cached_ceilings
from llmprof.engine.device import resolve_device
from llmprof.errors import InputError
from llmprof.experiments.sweep_order import predicted_round_s
from llmprof.instruments.snapshot import resolve_threads, snapshot
from llmprof.schema.ceilings import Ceilings
from llmprof.schema.environment import Environment
from llmprof.schema.run import Tool
from llmprof.schema.settings import GridValue, RunConfig, SweepSettings
from llmprof.schema.sweep import CellStatus, Sweep, SweepAxis, SweepCell
from llmprof.store.progress import Progress
from llmprof.store.settings_file import settings_with_values
from llmprof.store.sweeps import load_sweep, sweep_id

MAX_CELLS: Final = 2000
MAX_ATTEMPTS: Final = 3
"""Processes that may end while they measure one cell, before it is given up."""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    sweep: Sweep
    configs: tuple[RunConfig, ...]
    """Of each cell, by its index."""

    def cheapest_first(self) -> list[int]:
        """Indices of the cells; those that cannot run anyway cost nothing."""
        cells = self.sweep.cells
        return sorted(range(len(cells)), key=lambda i: (cells[i].predicted_round_s or 0.0, i))


def _nobody_else(identifier: str) -> None:
    pass


def plan_sweep(
    config: RunConfig,
    *,
    argv: tuple[str, ...],
    fresh: bool,
    progress: Progress,
    claim: Callable[[str], None] = _nobody_else,
) -> SweepPlan:
    """Check every cell's settings, and take over what was measured before unless `fresh`.

    `claim` is called with the sweep's name before its document is read, and may raise.

    Raises:
        InputError: no axis, too many cells, settings that are not valid, or no such model.
        CapabilityError: an architecture that is not supported.
    """
    axes = tuple(SweepAxis(key=key, values=values) for key, values in config.sweep.grid.items())
    changes = tuple(_changes(axes))
    base = config.model_copy(update={"sweep": SweepSettings()})
    configs = tuple(settings_with_values(base, one, place=_place(one)) for one in changes)
    sources = {one.model: _source(one) for one in configs}
    device = resolve_device(config.device)
    environment = snapshot(device, resolve_threads(config.execution.threads))
    files = [file for source in sources.values() for file in source.files]
    files += [Path(one) for one in {c.workload.file: None for c in configs} if one is not None]
    identifier = sweep_id(config, environment.fingerprint, files)
    claim(identifier)
    saved = None if fresh else load_sweep(identifier)
    tool = Tool(version=__version__, argv=tuple(PurePath(word).name for word in argv))
    if saved is None:
        ceilings = cached_ceilings(environment, device, progress=progress)
        cells = tuple(
            _new_cell(index, change, one, sources[one.model], ceilings)
            for index, (change, one) in enumerate(zip(changes, configs, strict=True))
        )
        saved = _new_sweep(identifier, config, environment, axes, cells, tool)
    else:
        saved = _taken_up(saved, config, tool)
    return SweepPlan(saved, configs)


def _changes(axes: tuple[SweepAxis, ...]) -> Iterator[dict[str, GridValue]]:
    if not axes:
        raise InputError(
            "a sweep needs an axis",
            remedy="Give --grid KEY=VALUES, for example --grid workload.batch=1,4,16, or put a group "
            "'sweep: {grid: ...}' into the settings file",
        )
    count = prod(len(axis.values) for axis in axes)
    if count > MAX_CELLS:
        raise InputError(f"the grid has {count} cells, and a sweep at most {MAX_CELLS}")
    for values in product(*(axis.values for axis in axes)):
        yield {axis.key: value for axis, value in zip(axes, values, strict=True)}


def _place(changes: dict[str, GridValue]) -> str:
    return "grid, " + ", ".join(f"{key}={value}" for key, value in changes.items())


def _source(config: RunConfig) -> ModelSource:
    return resolve_model(config.model, weights=config.weights.source)


def _new_cell(
    index: int,
    changes: dict[str, GridValue],
    config: RunConfig,
    source: ModelSource,
    ceilings: Ceilings,
) -> SweepCell:
    predicted = predicted_round_s(config, source, ceilings)
    return SweepCell(index=index, changes=changes, predicted_round_s=predicted)


def _new_sweep(
    identifier: str,
    config: RunConfig,
    environment: Environment,
    axes: tuple[SweepAxis, ...],
    cells: tuple[SweepCell, ...],
    tool: Tool,
) -> Sweep:
    now = datetime.now(UTC)
    return Sweep(
        id=identifier,
        created=now,
        updated=now,
        status="partial",
        tool=tool,
        base=config,
        model_name=_source(config).name,
        device=environment.device,
        device_name=environment.device_name,
        fingerprint=environment.fingerprint,
        axes=axes,
        cells=cells,
    )


def _taken_up(saved: Sweep, config: RunConfig, tool: Tool) -> Sweep:
    """An earlier process's document under this one's limits, ready to go on."""
    cells = tuple(map(_reopened, saved.cells))
    choices = batch_choices(saved.axes, cells, config.sweep)
    return saved.model_copy(
        update={"base": config, "tool": tool, "cells": cells, "choices": choices}
    )


def _reopened(cell: SweepCell) -> SweepCell:
    """What was refused may fit now; a cell that has ended process after process is given up."""
    if cell.status is CellStatus.REFUSED:
        return cell.model_copy(update={"status": CellStatus.PENDING, "reason": None})
    if cell.status is CellStatus.RUNNING and cell.attempts >= MAX_ATTEMPTS:
        reason = (
            f"the process ended {cell.attempts} times while it measured this cell, without a word: "
            "killed, perhaps for lack of memory"
        )
        return cell.model_copy(update={"status": CellStatus.FAILED, "reason": reason})
    return cell
