"""Two arms of which memory holds only one: each turn is a process that loads, measures, and ends.

The processes of a pair run one after the other, and the next pair in the other order. Every pair is
a launch of its own on both sides, which is the dearest and the most independent kind of pair.
"""

from llmprof.experiments.arm_messages import WholeRun
from llmprof.experiments.arm_process import ArmPlan, ArmProcess
from llmprof.experiments.output_tokens import OutputTokens
from llmprof.experiments.visits import joined, visit_settings
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from llmprof.store.progress import Progress

Both = tuple[tuple[RunRecord, RunRecord], tuple[OutputTokens, OutputTokens]]
"""Runs and outputs, each of the base and of the target."""


def measure_in_turns(base: RunConfig, target: RunConfig, *, progress: Progress) -> Both:
    """As many pairs as `base` has rounds: rounds of the same index are a pair.

    Raises:
        LlmprofError: what an arm raised, with its name.
        MeasurementFailedError: a process ended early.
    """
    pairs = base.measure.rounds
    plans = [
        ArmPlan(label, visit_settings(config, pairs))
        for label, config in (("baseline", base), ("candidate", target))
    ]
    turns: tuple[list[WholeRun], list[WholeRun]] = ([], [])
    for index in range(pairs):
        progress.update("pairs", index, pairs)
        for side in (0, 1) if index % 2 == 0 else (1, 0):
            with ArmProcess(plans[side]) as arm:
                turns[side].append(arm.profile())
    progress.update("pairs", pairs, pairs)
    return (
        (_whole(turns[0], base), _whole(turns[1], target)),
        (_written(turns[0], base), _written(turns[1], target)),
    )


def _whole(turns: list[WholeRun], config: RunConfig) -> RunRecord:
    """One run under the settings that were asked for."""
    return joined([one.record for one in turns]).model_copy(update={"settings": config})


def _written(turns: list[WholeRun], config: RunConfig) -> OutputTokens:
    return OutputTokens(config.workload, turns[-1].output_tokens)
