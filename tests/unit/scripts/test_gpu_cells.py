"""The cells of the GPU check: they fit into an H200's memory, and their groups into their time.

Times are forecasts of ours from datasheet rates, and generous guesses of everything around them.
"""

import itertools
from collections.abc import Iterator
from contextlib import suppress

import pytest

from llmprof.analysis.paper_device import PaperDevice
from llmprof.analysis.paper_forecast import paper_target, predict_on_paper
from llmprof.analysis.prediction_target import Target, capacity_of
from llmprof.architectures.source import resolve_model
from llmprof.devices.lookup import find_device
from llmprof.errors import CapabilityError
from llmprof.schema.ceilings import BandwidthCeiling, Ceilings, ComputeCeiling, FixedCost, MemoryOp
from llmprof.schema.cost import Phase
from llmprof.schema.datasheet import Datasheet
from llmprof.schema.settings import Quantization, WeightSource
from llmprof.store.settings_file import load_settings
from scripts.gpu.cells import base_settings, cells, groups
from scripts.gpu.parts import BUDGET_S, CELLS, SUMMARY_S, parts
from tests.records import a_run_record
from tests.unit.instruments.environments import a_gpu, an_environment

MODEL, DEVICE = "llama-3.1-8b", "cuda:0"
FREE_BYTES = 139 << 30
ROUNDS = 2 + 1 + 4 + 4
"""Warm-up, counting, clean and grouped rounds."""
START_S = 9.0
"""Of a process: imports, a context on the GPU, kernels that are compiled."""
LOAD_S, QUANTIZE_S = 2.0, 3.0
READING_S, OPEN_S, ENERGY_S = 0.3, 1.5, 1.5
EAGER_STEP_S = 6e-3
"""Of the host, however short the device's part of a step is."""
IN_TIME_LEFT = ("unfused", "varlen-32k", "flashinfer-32k", "compiled")
"""On a GPU: started only where parts before it left more than the budget of its own part."""


@pytest.fixture(scope="module")
def ceilings() -> Ceilings:
    """An H200 that reaches 85 % of its datasheet when it reads and 65 % when it multiplies."""
    sheet = find_device("NVIDIA H200", memory_bytes=FREE_BYTES)
    assert isinstance(sheet, Datasheet)
    assert sheet.memory_bytes_per_s == 4.8e12
    bytes_per_s = 0.85 * sheet.memory_bytes_per_s
    read = BandwidthCeiling(
        op=MemoryOp.READ,
        level="HBM",
        buffer_bytes=1 << 30,
        bytes_per_s=bytes_per_s,
        median_bytes_per_s=bytes_per_s,
        spread=0.0,
        kernel="stated",
    )
    gpu = a_gpu(name="NVIDIA H200", memory_bytes=FREE_BYTES)
    return Ceilings(
        measured_at=a_run_record(rounds=1).created,
        environment=an_environment(gpu=gpu, versions={"torch": "2.11.0", "triton": "3.5.0"}),
        bandwidth=(read,),
        compute=tuple(
            _compute(dtype, 0.65 * sheet.flops_per_s[dtype]) for dtype in sheet.flops_per_s
        ),
        fixed_cost=FixedCost(alpha_s=4e-6, spread=0.0, method="stated"),
    )


def _compute(dtype: str, flops_per_s: float) -> ComputeCeiling:
    return ComputeCeiling(
        dtype=dtype,
        m=8192,
        n=8192,
        k=8192,
        flops_per_s=flops_per_s,
        median_flops_per_s=flops_per_s,
        spread=0.0,
        kernel="stated",
    )


@pytest.fixture(scope="module")
def targets(ceilings: Ceilings) -> dict[str, Target]:
    """By cell, those apart that nobody can predict."""
    source = resolve_model(MODEL, weights=WeightSource.RANDOM)
    found = {}
    for cell in cells(DEVICE):
        config = load_settings(MODEL, {**base_settings(DEVICE), **cell.changes}, [])
        with suppress(CapabilityError):
            found[cell.name] = paper_target(
                source.config, source.manifest, config, PaperDevice.of_ceilings(ceilings)
            )
    return found


def of_group(group: str, targets: dict[str, Target]) -> list[Target]:
    names = [cell.name for cell in cells(DEVICE) if cell.group == group]
    return [targets[name] for name in names if name in targets and name not in IN_TIME_LEFT]


def seconds_of(target: Target, ceilings: Ceilings) -> float:
    """Of a cell whose weights are there."""
    forecast = {
        one.phase: one.step_s.point
        for one in predict_on_paper(target, PaperDevice.of_ceilings(ceilings)).phases
    }
    eager = target.settings.execution.mode.value == "eager"
    counts = {phase: sum(shape.phase is phase for shape in target.shapes) for phase in Phase}
    round_s = sum(
        counts[phase] * max(step_s, EAGER_STEP_S if eager else 0.0)
        for phase, step_s in forecast.items()
    )
    return OPEN_S + ROUNDS * round_s + READING_S * (1 + 8) + max(ENERGY_S, 2 * round_s)


def group_seconds(own: list[Target], ceilings: Ceilings) -> Iterator[float]:
    """Of a process: each model is loaded when the one before has other weights."""
    yield START_S
    for weights, run in itertools.groupby(own, key=lambda one: one.settings.weights):
        yield LOAD_S + QUANTIZE_S * (weights.quantization is not Quantization.NONE)
        yield from (seconds_of(target, ceilings) for target in run)


def test_the_parts_fit_into_the_whole() -> None:
    assert sum(part.seconds for part in parts(DEVICE)) <= BUDGET_S - SUMMARY_S
    assert BUDGET_S == 8 * 60
    assert all(part.least_s <= part.seconds for part in parts(DEVICE))


def test_what_others_rest_on_comes_first() -> None:
    names = [part.name for part in parts(DEVICE)]
    assert names[:4] == ["tests", "ceilings", "cells-decode", "gpm"]
    assert cells(DEVICE)[0].name == "base"


def test_every_cell_fits_beside_what_the_ceilings_are_read_from(
    targets: dict[str, Target],
) -> None:
    """A quarter of what is free goes to the pool of the live readings."""
    assert len(targets) >= len(cells(DEVICE)) - 1
    for name, target in targets.items():
        capacity = capacity_of(target, int(0.75 * FREE_BYTES))
        assert capacity.fits, f"{name}: {capacity}"


def test_every_group_ends_within_its_part(targets: dict[str, Target], ceilings: Ceilings) -> None:
    budgets = {part.name: part.seconds for part in parts(DEVICE)}
    took = {
        group: sum(group_seconds(of_group(group, targets), ceilings)) for group in groups(DEVICE)
    }
    assert all(took.values())
    late = {group: s for group, s in took.items() if s > 0.9 * budgets[CELLS + group]}
    assert not late, took


def test_what_has_no_budget_of_its_own_comes_last_and_only_where_time_is_left(
    targets: dict[str, Target], ceilings: Ceilings
) -> None:
    (group,) = {cell.group for cell in cells(DEVICE) if cell.name in IN_TIME_LEFT}
    own = [cell for cell in cells(DEVICE) if cell.group == group]
    assert tuple(cell.name for cell in own[-len(IN_TIME_LEFT) :]) == IN_TIME_LEFT
    budget_s = next(part.seconds for part in parts(DEVICE) if part.name == CELLS + group)
    left_s = budget_s - sum(group_seconds(of_group(group, targets), ceilings))
    assert all(cell.least_s > left_s for cell in own[-len(IN_TIME_LEFT) :])


def test_cells_of_a_group_load_their_weights_once(targets: dict[str, Target]) -> None:
    for group in groups(DEVICE):
        weights = [repr(target.settings.weights) for target in of_group(group, targets)]
        loads = [one for one, _ in itertools.groupby(weights)]
        assert len(loads) == len(set(loads)), group
