"""The parts of the check: what each does in its own process, and the time that it may take."""

import sys
from collections.abc import Callable, Mapping
from typing import Final

from scripts.gpu.cells import GATE_MODEL, gate_settings, groups
from scripts.gpu.job import Job
from scripts.gpu.schedule import Part

CELLS: Final = "cells-"
BUDGET_S: Final = 480.0
"""Of the whole check, eight minutes."""
SUMMARY_S: Final = 20.0
"""Of it, for what comes before the first part and after the last one."""
_SECONDS_OF_CELLS: Final = {"decode": 69.0, "quantized": 62.5, "size": 73.5, "others": 40.0}
_BOTH_LOOKS_S: Final = 60.0
_DRY_S: Final = 1800.0
"""A dry run has no budget of its own per part: a busy machine may take long for little."""


def parts(device: str) -> tuple[Part, ...]:
    """In order of worth, which is the order in which they run; their budgets fit into the whole.

    Whether the kernels are right comes first, then what every figure is judged by, then figures.
    """
    if device == "cpu":
        cells = [Part(CELLS + group, _DRY_S, 12.0) for group in groups(device)]
        return (Part("tests", _DRY_S, 2.0), Part("ceilings", _DRY_S, 2.0), *cells)
    first, *others = [
        Part(CELLS + group, _SECONDS_OF_CELLS[group], least_s=15.0) for group in groups(device)
    ]
    return (
        Part("tests", 49.0, 15.0),
        Part("ceilings", 48.0, 25.0),
        first,
        Part("gpm", 13.0, 9.0),
        *others,
        Part("verdicts", 35.0, 25.0),
        Part("tilings", 15.0, 12.0),
        Part("ncu", 28.0, 20.0),
        Part("gate", 27.0, 25.0),
    )


def run_part(name: str, job: Job) -> int:
    """Its exit status. Nothing of llmprof is imported before: what is missing fails one part alone."""
    if name.startswith(CELLS):
        from scripts.gpu.measure_cells import CellsOfGroup

        CellsOfGroup(job, name.removeprefix(CELLS)).run()
        return 0
    return _PARTS[name](job)


def _tests(job: Job) -> int:
    from scripts.gpu.side_by_side import run_tests

    return run_tests(job)


def _ceilings(job: Job) -> int:
    """What there is is written down before more is measured, and one that fails is left out."""
    from llmprof.ceilings.complete import ExtraPart, complete_ceilings
    from llmprof.ceilings.measure import keep_ceilings, measure_ceilings
    from llmprof.instruments.snapshot import resolve_threads, snapshot

    environment = snapshot(job.device, resolve_threads(None))
    keep_ceilings(measure_ceilings(environment, job.device, quick=not job.on_gpu))
    wanted = (ExtraPart.SUSTAINED, ExtraPart.GPM, ExtraPart.HOST) if job.on_gpu else ()
    for part in (None, *wanted):
        budget_s = 15.0 if part is ExtraPart.SUSTAINED else 2.0
        try:
            ceilings = complete_ceilings(
                environment,
                job.device,
                (part,) if part else (),
                budget_s=budget_s if part else None,
            )
        except Exception as error:  # noqa: BLE001 (whatever it is, the other ceilings are there)
            log_of_failure(error)
        else:
            job.found("ceilings", ceilings.model_dump(mode="json", by_alias=True))
    return 0


def _gpm(job: Job) -> int:
    from scripts.gpu.gpm_windows import try_windows

    try_windows(job)
    return 0


def _verdicts(job: Job) -> int:
    from scripts.gpu.verdicts import try_verdicts

    try_verdicts(job)
    return 0


def _tilings(job: Job) -> int:
    from scripts.gpu.tilings import try_tilings

    try_tilings(job)
    return 0


def _ncu(job: Job) -> int:
    from scripts.gpu.ncu_check import compare_with_ncu

    compare_with_ncu(job)
    return 0


def _gate(job: Job) -> int:
    """One look, unless parts before it left time for both: a launch of its two arms takes some 10 s."""
    from llmprof.experiments.gate_calibrate import LOOKS, calibrate_gate
    from llmprof.store.progress import NullProgress
    from llmprof.store.settings_file import load_settings

    config = load_settings(GATE_MODEL, gate_settings(job.device), [])
    looks = LOOKS if job.left_s > _BOTH_LOOKS_S else LOOKS[:1]
    floor = calibrate_gate(config, progress=NullProgress(), looks=looks).floor
    job.found("gate", floor.model_dump(mode="json", by_alias=True))
    return 0


_PARTS: Final[Mapping[str, Callable[[Job], int]]] = {
    "tests": _tests,
    "ceilings": _ceilings,
    "gpm": _gpm,
    "verdicts": _verdicts,
    "tilings": _tilings,
    "ncu": _ncu,
    "gate": _gate,
}


def log_of_failure(error: BaseException) -> None:
    """The last line of the log says what went wrong."""
    sys.stderr.write(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}\n")
