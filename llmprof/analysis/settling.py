"""Whether the steps of warm-up rounds have stopped changing."""

import statistics
from typing import Final

from llmprof.schema.cost import Phase
from llmprof.schema.run import StepSample

SETTLED_WITHIN: Final = 0.03
"""Warm-up ends when two rounds in a row differ by less than this share in their median step."""
MIN_WARMUP_ROUNDS: Final = 2


def phase_medians(steps: tuple[StepSample, ...]) -> dict[Phase, float]:
    phases = dict.fromkeys(step.shape.phase for step in steps)
    return {
        phase: statistics.median(step.duration_s for step in steps if step.shape.phase is phase)
        for phase in phases
    }


def steady_step_s(medians: dict[Phase, float]) -> float:
    """Of decode steps where there are any."""
    return medians.get(Phase.DECODE) or next(iter(medians.values()))


def has_settled(history: list[dict[Phase, float]]) -> bool:
    """Two rounds in a row agree in every phase."""
    if len(history) < MIN_WARMUP_ROUNDS:
        return False
    before, last = history[-2:]
    return all(
        phase in before and abs(last[phase] / before[phase] - 1) < SETTLED_WITHIN for phase in last
    )
