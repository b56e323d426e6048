"""Predictions that were written down before their arm, beside what was measured then."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmprof.analysis.phases import measure_phase
from llmprof.analysis.validity import select_rounds
from llmprof.errors import LlmprofError
from llmprof.schema.prediction import Prediction
from llmprof.store.documents import read_document
from llmprof.store.runs import find_run, runs_folder


@dataclass(frozen=True, slots=True)
class Predicted:
    """One phase of a cell."""

    name: str
    predicted_s: float
    low_s: float
    high_s: float
    measured_s: float

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1

    @property
    def inside(self) -> bool:
        return self.low_s <= self.measured_s <= self.high_s


def predicted_cells(found: Mapping[str, Any]) -> tuple[Predicted, ...]:
    """Every phase that has both."""
    return tuple(
        one
        for name, told in found.items()
        if name.startswith("cell-") and "prediction" in told and "run" in told
        for one in _of_cell(name.removeprefix("cell-"), told["prediction"], told["run"])
    )


@functools.cache
def _of_cell(name: str, file: str, run: str) -> tuple[Predicted, ...]:
    """Read once: the summary is written again after every part of the check."""
    try:
        prediction, _ = read_document(runs_folder().parent / "predictions" / file, Prediction)
        record = find_run(run)
    except LlmprofError:
        return ()
    clean = select_rounds(record.rounds)
    found = []
    for one in prediction.phases:
        measured = measure_phase(clean, one.phase)
        if measured is not None:
            step = one.step_s
            found.append(
                Predicted(
                    f"{name}, {one.phase.value}",
                    step.point,
                    step.low,
                    step.high,
                    measured.step_s.point,
                )
            )
    return tuple(found)
