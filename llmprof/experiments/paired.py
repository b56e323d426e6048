"""Two settings measured in turn, A B B A, so that what drifts hits both alike.

In one process where memory holds both engines; else each turn loads its own in a process of its own.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from llmprof.errors import DoesNotFitError
from llmprof.experiments.output_tokens import OutputTokens, compare_outputs
from llmprof.experiments.turns import measure_in_turns
from llmprof.instruments.snapshot import resolve_threads
from llmprof.profiler import profile
from llmprof.schema.comparison import Arrangement
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
    arrangement: Arrangement


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
    """As many pairs as `base` has rounds, each arm with readings around its own; `measure` is the base's.

    Raises:
        CapabilityError: one of the two cannot run.
        MeasurementFailedError: memory ran out.
    """
    progress = progress or NullProgress()
    target = target.model_copy(update={"measure": base.measure})
    try:
        return _in_one_process(base, target, argv, progress)
    except DoesNotFitError:
        pass  # its traceback holds the engine that was loaded first
    _free_memory()
    progress.note(
        "memory does not hold both: each pair loads one after the other "
        f"(pairs: {base.measure.rounds})"
    )
    records, outputs = measure_in_turns(base, target, progress=progress)
    return PairedRuns(*records, compare_outputs(*outputs), Arrangement.OWN_PROCESSES)


def _in_one_process(
    base: RunConfig, target: RunConfig, argv: tuple[str, ...], progress: Progress
) -> PairedRuns:
    """Raises DoesNotFitError where memory does not hold both at once."""
    inner = _Inner()

    def beside(first: Session) -> None:
        def in_turn(second: Session) -> None:
            _abba(first, second, progress)
            inner.outputs = compare_outputs(OutputTokens.of(first), OutputTokens.of(second))

        inner.record = profile(target, argv=argv, progress=progress, rounds=in_turn)

    record = profile(base, argv=argv, progress=progress, rounds=beside)
    assert inner.record is not None, "the inner measurement returns or raises"
    # One process has one peak: it belongs to neither of the two.
    one, other = (
        run.model_copy(update={"peak_memory_bytes": None}) for run in (record, inner.record)
    )
    return PairedRuns(one, other, inner.outputs, Arrangement.ONE_PROCESS)


def _free_memory() -> None:
    gc.collect()
    torch.cuda.empty_cache()  # does nothing where no GPU was used


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
