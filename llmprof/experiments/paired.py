"""Two settings measured in turn in one process: A B B A, so that what drifts hits both alike."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from llmprof.engine.engine_workload import EngineWorkload
from llmprof.instruments.snapshot import resolve_threads
from llmprof.profiler import profile
from llmprof.schema.confirmation import OutputComparison
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import Pass, RunConfig
from llmprof.session import Session
from llmprof.store.progress import NullProgress, Progress


@dataclass(frozen=True, slots=True)
class PairedRuns:
    """Rounds of the same index are a pair."""

    base: RunRecord
    target: RunRecord
    outputs: OutputComparison


@dataclass(slots=True)
class _Inner:
    """What the inner measurement leaves behind for the outer one."""

    record: RunRecord | None = None
    outputs: OutputComparison = field(
        default_factory=lambda: OutputComparison(same=None, reason="interrupted")
    )


def measure_pairs(
    base: RunConfig,
    target: RunConfig,
    *,
    argv: tuple[str, ...] = (),
    progress: Progress | None = None,
) -> PairedRuns:
    """Both in memory at once, each with readings around its own rounds; `measure` is the base's.

    Raises:
        CapabilityError: one of the two cannot run, or memory does not hold both.
        MeasurementFailedError: memory ran out.
    """
    progress = progress or NullProgress()
    target = target.model_copy(update={"measure": base.measure})
    inner = _Inner()

    def beside(first: Session) -> None:
        def in_turn(second: Session) -> None:
            _abba(first, second, progress)
            inner.outputs = _compare_outputs(first, second)

        inner.record = profile(target, argv=argv, progress=progress, rounds=in_turn)

    record = profile(base, argv=argv, progress=progress, rounds=beside)
    assert inner.record is not None, "the inner measurement returns or raises"
    return PairedRuns(record, inner.record, inner.outputs)


def _abba(first: Session, second: Session, progress: Progress) -> None:
    """Clean rounds pair by pair, each pair in the other order; grouped rounds after each pair."""
    total = first.config.measure.rounds
    turns = (_turn(first), _turn(second))
    for index in range(total):
        progress.update("pairs", index, total)
        order = turns if index % 2 == 0 else turns[::-1]
        for grouped in (False, True):
            if not grouped or Pass.GROUPED in first.config.measure.passes:
                for run in order:
                    run(index, grouped)
    progress.update("pairs", total, total)


def _turn(session: Session) -> Callable[[int, bool], None]:
    """A round with the threads of its own setting: torch has one number for the whole process."""
    threads = resolve_threads(session.config.execution.threads)

    def run(index: int, grouped: bool) -> None:
        torch.set_num_threads(threads)
        session.paired_round(index, grouped=grouped)

    return run


def _compare_outputs(first: Session, second: Session) -> OutputComparison:
    """Of the last rounds: every round of one side gives the same tokens."""
    one, other = first.workload, second.workload
    if not isinstance(one, EngineWorkload) or not isinstance(other, EngineWorkload):
        return OutputComparison(same=None, reason="served requests keep no tokens to compare")
    before, after = first.config.workload, second.config.workload
    asked = ("batch", "prompt_tokens", "output_tokens", "context", "seed")
    differing = [key for key in asked if getattr(before, key) != getattr(after, key)]
    if differing:
        keys = ", ".join(f"workload.{key}" for key in differing)
        return OutputComparison(same=None, reason=f"{keys} differ: other tokens were asked for")
    tokens, others = one.output_tokens(), other.output_tokens()
    equal = int((tokens == others).sum())
    return OutputComparison(same=equal == tokens.numel(), tokens=tokens.numel(), equal_tokens=equal)
