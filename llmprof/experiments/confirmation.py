"""Test the verdicts of a run: one thing is changed on purpose, steps with and without it take turns.

What each verdict forecasts, and whether that held, is worked out in `analysis.intervention_outcomes`
from the raw pairs that are recorded here.
"""

from collections.abc import Callable, Sequence

from llmprof.errors import CapabilityError, MeasurementFailedError
from llmprof.experiments.intervention_bench import InterventionBench
from llmprof.experiments.interventions import INTERVENTIONS
from llmprof.schema.cost import Phase
from llmprof.schema.intervention import Intervention, InterventionKind
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from llmprof.store.progress import NullProgress, Progress

PAIRS = 6
"""From here on min..max of the pairs' ratios covers their median with 95 %."""


def confirm_verdicts(
    config: RunConfig,
    record: RunRecord,
    *,
    progress: Progress | None = None,
    pairs: int | None = None,
    kinds: Sequence[InterventionKind] = tuple(INTERVENTIONS),
    told: Callable[[RunRecord], None] = lambda record: None,
) -> RunRecord:
    """The record with every intervention that this device and these settings allow.

    `told` is called with what there is after each of `kinds`. One that fails is recorded with the
    reason. An interrupt keeps those that are complete, and makes the record partial.

    Raises:
        LlmprofError: the model cannot be loaded again.
    """
    progress = progress or NullProgress()
    made: list[Intervention] = []
    try:
        bench = InterventionBench.open(config, record, pairs=pairs or PAIRS)
        for done, kind in enumerate(kinds):
            progress.update("interventions", done, len(kinds))
            try:
                made += INTERVENTIONS[kind](bench)
            except (CapabilityError, MeasurementFailedError, RuntimeError) as error:
                # torch's own are RuntimeErrors: what one intervention asks of a GPU may be refused
                why = str(error).partition("\n")[0] or type(error).__name__
                failed = Intervention(kind=kind, phase=Phase.DECODE, change=kind.value, skipped=why)
                made.append(failed)
            told(record.model_copy(update={"interventions": tuple(made)}))
        progress.update("interventions", len(kinds), len(kinds))
    except KeyboardInterrupt:
        reason = f"interrupted while its verdicts were tested, after {len(made)} interventions"
        record = record.model_copy(update={"status": "partial", "status_reason": reason})
    return record.model_copy(update={"interventions": tuple(made)})
