"""Whether two arms wrote the same, and from which token on they did not."""

from dataclasses import dataclass

import numpy as np

from llmprof.engine.engine_workload import EngineWorkload
from llmprof.engine.workload import Workload
from llmprof.schema.confirmation import OutputComparison
from llmprof.schema.settings import WorkloadSettings
from llmprof.session import Session

_ASKED = ("batch", "prompt_tokens", "output_tokens", "context", "seed")


@dataclass(frozen=True, slots=True)
class OutputTokens:
    """What an arm wrote in its last round: every round of one arm gives the same."""

    workload: WorkloadSettings
    ids: tuple[tuple[int, ...], ...] | None
    """[sequence][step]; None for served requests, which keep none."""

    @classmethod
    def of(cls, session: Session) -> "OutputTokens":
        return cls(session.config.workload, written_tokens(session.workload))


def written_tokens(workload: Workload) -> tuple[tuple[int, ...], ...] | None:
    """Ids [sequence][step] of the last round; None for served requests, which keep none."""
    if not isinstance(workload, EngineWorkload):
        return None
    return tuple(map(tuple, workload.output_tokens().tolist()))


def compare_outputs(one: OutputTokens, other: OutputTokens) -> OutputComparison:
    """Token by token, where both arms were asked for the same ones."""
    if one.ids is None or other.ids is None:
        return OutputComparison(same=None, reason="served requests keep no tokens to compare")
    differing = [
        key for key in _ASKED if getattr(one.workload, key) != getattr(other.workload, key)
    ]
    if differing:
        keys = ", ".join(f"workload.{key}" for key in differing)
        return OutputComparison(same=None, reason=f"{keys} differ: other tokens were asked for")
    equal = np.array(one.ids) == np.array(other.ids)
    return OutputComparison(
        same=bool(equal.all()),
        tokens=int(equal.size),
        equal_tokens=int(equal.sum()),
        first_difference=first_difference(one.ids, other.ids),
    )


def first_difference(
    one: tuple[tuple[int, ...], ...], other: tuple[tuple[int, ...], ...]
) -> int | None:
    """Number, from 1, of the first token that differs in any sequence; None where all are equal."""
    steps = np.flatnonzero((np.array(one) != np.array(other)).any(axis=0))
    return int(steps[0]) + 1 if steps.size else None
