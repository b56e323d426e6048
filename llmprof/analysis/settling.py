"""Whether the steps of warm-up rounds have stopped getting faster.

A cold start is slow and becomes faster: caches fill, kernels are compiled, clocks rise. What goes up
and down from there on is the machine's, whose ceilings are read beside every round: waiting for two rounds
that agree would wait for luck.
"""

import statistics
from typing import Final

from llmprof.schema.cost import Phase
from llmprof.schema.run import StepSample

SETTLED_WITHIN: Final = 0.03
"""Warm-up ends with a round that is not faster than every one before it by more than this share."""
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
    """The last round set no new best in any phase, or hardly one."""
    if len(history) < MIN_WARMUP_ROUNDS:
        return False
    *before, last = history
    return all(
        all(phase in one for one in before)
        and last[phase] > (1 - SETTLED_WITHIN) * min(one[phase] for one in before)
        for phase in last
    )
